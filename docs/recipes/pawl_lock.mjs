#!/usr/bin/env node
// A lock of pawl in Node.js 18 or later, with fetch; no package needed.
//
//     await locked("report", { ttlMs: 30_000, waitMs: 60_000 }, async (lease) => {
//         ...                  // lease.token goes with every write to a store that checks it
//         lease.check();       // between steps: throws LeaseLost once it is time to stop
//     });                      // lease.signal is an AbortSignal for whatever takes one
//
// What is promised. Work is told to stop a quarter of the ttl before the lease can end, by a monotonic clock
// that is read before each request is sent. Work that hasn't stopped a sixth of the ttl later is ended with
// its process. Work that keeps the event loop busy keeps the renewals from being sent as well: give such work
// to a Worker. Nobody can stop a process that is stopped itself (and this clock stops while the machine is
// suspended), so the database must check the token; `guarded` does it for SQLite.
//
// As a program: pawl_lock.mjs LOCK TTL_MS WAIT_MS DATABASE STEPS PAUSE_MS counts in a table `tally`, see
// clients.md. Exit codes: 0 done, 1 the work failed, 113 the lease was lost, 114 somebody else has the lock,
// 115 pawld gave no good answer.
// PAWL_SERVER: where pawld is, http://HOST:PORT (fetch knows no unix sockets); http://127.0.0.1:7295 unless
// set.
// PAWL_TOKEN_FILE: a file with the access token, if pawld wants one; read for each request, so it may be changed.

import { execFile } from "node:child_process";
import { randomUUID } from "node:crypto";
import { readFileSync, realpathSync } from "node:fs";
import { hostname } from "node:os";
import { setTimeout as delay } from "node:timers/promises";
import { fileURLToPath } from "node:url";

const SERVER = process.env.PAWL_SERVER ?? "http://127.0.0.1:7295";
const PATIENCE_MS = 10_000; // how long to go on asking, beyond the wait, when there is no good answer
const BACK_OFF_MS = 100;
const BACK_OFF_CAP_MS = 2_000;

export class Held extends Error {} // somebody else has the lock, also after the wait
export class Unavailable extends Error {} // pawld gave no good answer
export class LeaseLost extends Error {} // stop: the lease is lost, or will end before the next answer may come

const now = () => performance.now();
const jitter = (ms) => ms * (0.5 + Math.random() / 2);

// ---------------------------------------------------------------- one call

// { status, reply, retryAfterMs }; status 0 and why if there was no answer: what became of the request isn't
// known. fetch gives up after five minutes without an answer, whatever is asked for here; a longer wait is
// then repeated, and keeps its place in the queue.
async function call(lock, verb, params, timeoutMs, signal) {
    const abort = new AbortController();
    const timer = setTimeout(() => abort.abort(), timeoutMs);
    const leave = () => abort.abort();
    signal?.addEventListener("abort", leave);
    try {
        const request = { method: "POST", headers: access(), body: JSON.stringify(params), signal: abort.signal };
        const response = await fetch(`${SERVER}/v1/locks/${lock}/${verb}`, request);
        const retryAfterMs = Math.min(Number(response.headers.get("retry-after") ?? 0) * 1000 || 0, PATIENCE_MS);
        return { status: response.status, reply: (await response.json()) ?? {}, retryAfterMs };
    } catch (error) {
        return { status: 0, reply: { message: error.cause?.message || error.cause?.code || error.message }, retryAfterMs: 0 };
    } finally {
        clearTimeout(timer);
        signal?.removeEventListener("abort", leave);
    }
}

function access() {
    const path = process.env.PAWL_TOKEN_FILE;
    return path ? { Authorization: `Bearer ${readFileSync(path, "latin1").trim()}` } : {};
}

const worthRepeating = (status) => [0, 408, 429].includes(status) || status >= 500;

// ---------------------------------------------------------------- a lease

// Runs work(lease) while the lease is renewed, and releases it when the work has ended in whatever way. An
// aborted `signal` (a SIGTERM, say) ends a wait for the lock, and the work as if the lease were lost.
export async function locked(lock, { ttlMs, waitMs, signal }, work) {
    const lease = await acquire(lock, ttlMs, waitMs, signal);
    try {
        lease.start(signal);
        return await work(lease);
    } finally {
        await lease.stop();
    }
}

// A Lease that nobody renews yet. The lease id is made once: with it, every repetition means the same lease
// and the same place in the queue.
async function acquire(lock, ttlMs, waitMs, signal) {
    const lease = new Lease(lock, ttlMs);
    const begun = now();
    let pause = BACK_OFF_MS;
    try {
        for (;;) {
            signal?.throwIfAborted();
            const sent = now();
            const leftMs = Math.max(0, Math.round(waitMs - (sent - begun)));
            const asked = { lease_id: lease.id, ttl_ms: ttlMs, wait_ms: leftMs, owner: `${hostname()}:${process.pid}` };
            const { status, reply, retryAfterMs } = await call(lock, "acquire", asked, leftMs + 5_000, signal);
            if (status === 200) {
                lease.token = reply.token;
                lease.deadline = sent + (reply.ttl_ms ?? 0);
                // A grant that came after a wait is counted from before the wait, so it is renewed first,
                // which tells a deadline to work with.
                if (now() < sent + ttlMs / 3 || (await lease.renew(5_000)).renewed) return lease;
            } else if (status === 409) {
                throw new Held(`${lock} is held by ${reply.holder?.owner ?? "somebody"}`);
            } else if (!worthRepeating(status)) {
                throw new Unavailable(`pawld refuses: ${status} ${reply.message ?? ""}`);
            }
            if (now() > begun + waitMs + PATIENCE_MS) {
                throw new Unavailable(`no good answer from ${SERVER}: ${status} ${reply.message ?? ""}`);
            }
            await delay(Math.max(retryAfterMs, jitter(pause)), undefined, { signal });
            pause = Math.min(pause * 2, BACK_OFF_CAP_MS);
        }
    } catch (error) {
        if (!(error instanceof Held)) {
            lease.deadline = now() + 1_000; // what may have been granted is given back
            await lease.release();
        }
        throw error;
    }
}

class Lease {
    id = randomUUID();
    token = undefined; // goes with every write
    deadline = 0; // the lease can't have ended before
    #lost = new AbortController(); // the work has to stop
    #done = new AbortController();
    #keepAlive;

    constructor(lock, ttlMs) {
        this.lock = lock;
        this.ttlMs = ttlMs;
    }

    get signal() {
        return this.#lost.signal;
    }

    // Between steps of the work.
    check() {
        if (now() >= this.#stopAt()) this.lose();
        this.signal.throwIfAborted();
    }

    // A sleep that ends when the lease is lost.
    async sleep(ms) {
        await delay(ms, undefined, { signal: this.signal }).catch(() => {});
        this.check();
    }

    lose(reason = new LeaseLost(`the lease on ${this.lock} is lost`)) {
        if (!this.signal.aborted) this.#lost.abort(reason);
    }

    // Has the lease a new deadline? It is lost when pawld says so.
    async renew(timeoutMs) {
        const sent = now();
        const asked = { lease_id: this.id, ttl_ms: this.ttlMs };
        const { status, reply, retryAfterMs } = await call(this.lock, "renew", asked, timeoutMs, this.#done.signal);
        if (status === 200) this.deadline = sent + (reply.ttl_ms ?? 0);
        if (status === 410) this.lose();
        return { renewed: status === 200, retryAfterMs };
    }

    // As often as it makes sense; a lease that can't be released ends by itself.
    async release() {
        const end = Math.min(this.deadline, now() + 5_000);
        let pause = BACK_OFF_MS;
        while (now() < end) {
            const { status, retryAfterMs } = await call(this.lock, "release", { lease_id: this.id }, Math.max(100, end - now()));
            if (status === 200 || status === 410 || this.signal.aborted) return;
            await delay(Math.max(0, Math.min(Math.max(retryAfterMs, pause), end - now())));
            pause = Math.min(pause * 2, BACK_OFF_CAP_MS);
        }
    }

    start(signal) {
        signal?.addEventListener("abort", () => this.lose(signal.reason), { once: true });
        if (signal?.aborted) this.lose(signal.reason);
        this.#keepAlive = this.#run();
    }

    // Ends the keep-alive, then the lease.
    async stop() {
        this.#done.abort();
        await this.#keepAlive;
        await this.release();
    }

    #stopAt() {
        return this.deadline - this.ttlMs / 4;
    }

    // True if the work ended meanwhile.
    async #pause(ms) {
        await delay(Math.max(0, ms), undefined, { signal: this.#done.signal }).catch(() => {});
        return this.#done.signal.aborted;
    }

    async #run() {
        let pause = BACK_OFF_MS;
        let due = this.deadline - (this.ttlMs * 2) / 3;
        for (;;) {
            if (await this.#pause(Math.min(due, this.#stopAt()) - now())) return;
            const left = this.#stopAt() - now();
            if (left <= 0 || this.signal.aborted) break;
            // one answer that never comes must not use up all the time
            const { renewed, retryAfterMs } = await this.renew(Math.max(100, left / 3));
            if (renewed) {
                pause = BACK_OFF_MS;
                due = this.deadline - (this.ttlMs * 2) / 3;
            } else {
                due = now() + Math.max(Math.min(retryAfterMs, left / 3), jitter(pause));
                pause = Math.min(pause * 2, BACK_OFF_CAP_MS);
            }
            if (this.signal.aborted) break;
        }
        this.lose();
        if (await this.#pause(this.ttlMs / 6)) return;
        console.error(`the lease on ${this.lock} is lost and the work goes on: ending the process`);
        process.exit(113);
    }
}

// ---------------------------------------------------------------- the work: its database checks the token (share/pawl/guards/sqlite)

// One transaction, which is refused once a later holder has written; resolves to what it printed. It is run
// by the command sqlite3 here, as Node.js 18 has no driver of its own: with yours, send the same statements
// through one connection.
function guarded(lease, database, sql) {
    const claim = `INSERT INTO pawl_fence (resource, token) VALUES ('${lease.lock}', ${lease.token});`;
    const args = ["-bail", "-cmd", ".timeout 20000", database, `BEGIN IMMEDIATE; ${claim} ${sql}; COMMIT;`];
    return new Promise((resolve, reject) => {
        execFile("sqlite3", args, (error, stdout, stderr) => {
            if (!error) resolve(stdout.trim());
            else if (stderr.includes("PAWL1")) reject(new LeaseLost(`refused by the database: ${stderr.trim()}`));
            else reject(new Error(stderr.trim() || error.message));
        });
    });
}

// Reads a number, thinks about it, writes the next one: between the two, nobody else may.
async function count(lease, database, steps, pauseMs) {
    for (let step = 0; step < steps; step++) {
        lease.check();
        const value = Number(await guarded(lease, database, `SELECT value FROM tally WHERE name = '${lease.lock}'`));
        await lease.sleep(pauseMs);
        await guarded(lease, database, `UPDATE tally SET value = ${value + 1} WHERE name = '${lease.lock}'`);
    }
}

class Terminated extends Error {}

async function main() {
    if (process.argv.length !== 8) {
        console.error("usage: pawl_lock.mjs LOCK TTL_MS WAIT_MS DATABASE STEPS PAUSE_MS");
        return 125;
    }
    const [lock, ttlMs, waitMs, database, steps, pauseMs] = process.argv.slice(2);
    const end = new AbortController();
    process.once("SIGTERM", () => end.abort(new Terminated("terminated"))); // so that the lock is released
    try {
        await locked(lock, { ttlMs: Number(ttlMs), waitMs: Number(waitMs), signal: end.signal }, (lease) =>
            count(lease, database, Number(steps), Number(pauseMs)));
        return 0;
    } catch (error) {
        console.error(`pawl_lock.mjs: ${error.message}`);
        if (end.signal.aborted) return 143;
        return new Map([[LeaseLost, 113], [Held, 114], [Unavailable, 115]]).get(error.constructor) ?? 1;
    }
}

if (realpathSync(process.argv[1]) === fileURLToPath(import.meta.url)) process.exitCode = await main();

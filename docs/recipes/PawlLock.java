import java.io.IOException;
import java.net.InetAddress;
import java.net.URI;
import java.net.URLEncoder;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.UUID;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/**
 * A lock of pawl in Java 17 or later, with java.net.http and nothing else.
 *
 * <pre>
 *     try (PawlLock lease = PawlLock.acquire("report", 30_000, 60_000)) {
 *         ...                  // lease.token goes with every write to a store that checks it
 *         lease.check();       // between steps: throws LeaseLost once it is time to stop
 *     }
 * </pre>
 *
 * What is promised. The work's thread is interrupted a quarter of the ttl before the lease can end, by a
 * monotonic clock that is read before each request is sent. Work that hasn't stopped a sixth of the ttl later
 * is ended with its process: Java can't end a thread. Nobody can stop a process that is stopped itself (and
 * this clock stops while the machine is suspended), so the database must check the token; guarded() does it
 * for SQLite.
 *
 * As a program: java PawlLock.java LOCK TTL_MS WAIT_MS DATABASE STEPS PAUSE_MS counts in a table `tally`, see
 * clients.md. Exit codes: 0 done, 1 the work failed, 113 the lease was lost, 114 somebody else has the lock,
 * 115 pawld gave no good answer.
 * PAWL_TOKEN_FILE: a file with the access token, if pawld wants one; read for each request, so it may be changed.
 * PAWL_SERVER: where pawld is, http://HOST:PORT (HttpClient knows no unix sockets); http://127.0.0.1:7295
 * unless set.
 */
public final class PawlLock implements AutoCloseable {
    /** Somebody else has the lock, also after the wait. */
    public static final class Held extends Exception {
        Held(String message) { super(message); }
    }

    /** pawld gave no good answer. */
    public static final class Unavailable extends Exception {
        Unavailable(String message) { super(message); }
    }

    /** Stop: the lease is lost, or will end before the next answer may come. */
    public static final class LeaseLost extends Exception {
        LeaseLost(String message) { super(message); }
    }

    private static final String SERVER = System.getenv().getOrDefault("PAWL_SERVER", "http://127.0.0.1:7295");
    private static final String TOKEN_FILE = System.getenv().getOrDefault("PAWL_TOKEN_FILE", "");
    private static final long PATIENCE_MS = 10_000; // how long to go on asking, beyond the wait, when there is no good answer
    private static final long BACK_OFF_MS = 100;
    private static final long BACK_OFF_CAP_MS = 2_000;

    // ---------------------------------------------------------------- one call

    private static final HttpClient CLIENT = HttpClient.newBuilder().version(HttpClient.Version.HTTP_1_1).build();

    /** Status 0, with why as the body: there was no answer, and what became of the request isn't known. */
    private record Reply(int status, String body, long retryAfterMs) {
        boolean worthRepeating() { return status == 0 || status == 408 || status == 429 || status >= 500; }

        /** The whole number of that name. Inside of texts the quotes would be escaped, so there it isn't found. */
        long number(String name) throws Unavailable {
            Matcher found = Pattern.compile("\"" + name + "\": *([0-9]+)").matcher(body);
            if (!found.find()) throw new Unavailable("no pawld answers at " + SERVER + ": " + body);
            return Long.parseLong(found.group(1));
        }
    }

    private static Reply call(String lock, String verb, String query, long timeoutMs) throws InterruptedException {
        try {
            URI uri = URI.create(SERVER + "/v1/locks/" + lock + "/" + verb + "?" + query);
            HttpRequest.Builder request = HttpRequest.newBuilder(uri).POST(HttpRequest.BodyPublishers.noBody());
            if (!TOKEN_FILE.isEmpty()) {
                request.header("Authorization", "Bearer " + Files.readString(Path.of(TOKEN_FILE)).strip());
            }
            request.timeout(Duration.ofMillis(timeoutMs));
            HttpResponse<String> response = CLIENT.send(request.build(), HttpResponse.BodyHandlers.ofString());
            String after = response.headers().firstValue("Retry-After").filter(text -> text.matches("[0-9]{1,6}")).orElse("0");
            return new Reply(response.statusCode(), response.body(), Math.min(Long.parseLong(after) * 1000, PATIENCE_MS));
        } catch (IOException | IllegalArgumentException none) { // no connection, no answer, no address, or a token that is none
            return new Reply(0, none.toString(), 0);
        }
    }

    private static long now() { return System.nanoTime() / 1_000_000; }

    private static long jitter(long ms) { return ThreadLocalRandom.current().nextLong(ms / 2, ms + 1); }

    // ---------------------------------------------------------------- a lease

    public final String lock;
    public volatile long token; // goes with every write
    private final String id = UUID.randomUUID().toString();
    private final long ttlMs;
    private final Thread worker = Thread.currentThread();
    private final CountDownLatch done = new CountDownLatch(1);
    private final Thread keepAlive = new Thread(this::keepAlive, "pawl-keep-alive");
    private volatile long deadline; // the lease can't have ended before
    private volatile boolean lost;

    private PawlLock(String lock, long ttlMs) {
        this.lock = lock;
        this.ttlMs = ttlMs;
        keepAlive.setDaemon(true);
    }

    /**
     * A lease that is renewed until close(). The lease id is made once: with it, every repetition means the
     * same lease and the same place in the queue. The thread that calls this is the one that is interrupted
     * when the lease is lost.
     */
    public static PawlLock acquire(String lock, long ttlMs, long waitMs) throws Held, Unavailable, InterruptedException {
        PawlLock lease = new PawlLock(lock, ttlMs);
        try {
            lease.ask(waitMs);
            lease.keepAlive.start();
            return lease;
        } catch (Unavailable | InterruptedException | RuntimeException | Error error) { // what may have been granted is given back
            lease.deadline = now() + 1_000;
            lease.release();
            throw error;
        }
    }

    private void ask(long waitMs) throws Held, Unavailable, InterruptedException {
        long begun = now();
        String owner = URLEncoder.encode(hostname() + ":" + ProcessHandle.current().pid(), StandardCharsets.UTF_8);
        for (long pause = BACK_OFF_MS;; pause = Math.min(pause * 2, BACK_OFF_CAP_MS)) {
            long sent = now();
            long left = Math.max(0, waitMs - (sent - begun));
            Reply reply = call(lock, "acquire", "lease_id=" + id + "&ttl=" + ttlMs + "ms&wait=" + left + "ms&owner=" + owner, left + 5_000);
            if (reply.status() == 200) {
                token = reply.number("token");
                deadline = sent + reply.number("ttl_ms");
                // A grant that came after a wait is counted from before the wait, so it is renewed first,
                // which tells a deadline to work with.
                if (now() < sent + ttlMs / 3 || renew(5_000).status() == 200) return;
            } else if (reply.status() == 409) {
                throw new Held(lock + " is held by somebody else: " + reply.body().strip());
            } else if (!reply.worthRepeating()) {
                throw new Unavailable("pawld refuses: " + reply.status() + " " + reply.body().strip());
            }
            if (now() > begun + waitMs + PATIENCE_MS) {
                throw new Unavailable("no good answer from " + SERVER + ": " + reply.status() + " " + reply.body().strip());
            }
            Thread.sleep(Math.max(reply.retryAfterMs(), jitter(pause)));
        }
    }

    private static String hostname() {
        try {
            return InetAddress.getLocalHost().getHostName();
        } catch (IOException none) {
            return "java";
        }
    }

    /** Between steps of the work. */
    public void check() throws LeaseLost {
        if (lost || now() >= stopAt()) throw new LeaseLost("the lease on " + lock + " is lost");
    }

    /** A sleep that ends when the lease is lost. */
    public void sleep(long ms) throws LeaseLost, InterruptedException {
        try {
            Thread.sleep(ms);
        } catch (InterruptedException woken) {
            check();
            throw woken; // by somebody else
        }
        check();
    }

    private long stopAt() { return deadline - ttlMs / 4; }

    /** Moves the deadline if the answer is 200; 410 says that the lease is lost. */
    private Reply renew(long timeoutMs) throws InterruptedException, Unavailable {
        long sent = now();
        Reply reply = call(lock, "renew", "lease_id=" + id + "&ttl=" + ttlMs + "ms", timeoutMs);
        if (reply.status() == 200) deadline = sent + reply.number("ttl_ms");
        if (reply.status() == 410) lost = true;
        return reply;
    }

    /** Ends the keep-alive, then the lease, also for a thread that was interrupted. */
    @Override
    public void close() {
        done.countDown();
        keepAlive.interrupt(); // a renewal that is under way
        boolean interrupted = Thread.interrupted();
        try {
            keepAlive.join(ttlMs);
        } catch (InterruptedException again) {
            interrupted = true;
        }
        interrupted |= Thread.interrupted() && !lost;
        release();
        if (interrupted && !lost) Thread.currentThread().interrupt();
    }

    /** As often as it makes sense; a lease that can't be released ends by itself. */
    private void release() {
        boolean interrupted = Thread.interrupted();
        long end = Math.min(deadline, now() + 5_000);
        for (long pause = BACK_OFF_MS; now() < end; pause = Math.min(pause * 2, BACK_OFF_CAP_MS)) {
            try {
                Reply reply = call(lock, "release", "lease_id=" + id, Math.max(100, end - now()));
                if (reply.status() == 200 || reply.status() == 410 || lost) break;
                Thread.sleep(Math.max(0, Math.min(Math.max(reply.retryAfterMs(), pause), end - now())));
            } catch (InterruptedException again) {
                interrupted = true;
            }
        }
        if (interrupted) Thread.currentThread().interrupt();
    }

    /** Waits; true when the work has ended. */
    private boolean doneWithin(long ms) {
        try {
            return done.await(ms, TimeUnit.MILLISECONDS);
        } catch (InterruptedException closed) {
            return true;
        }
    }

    private void keepAlive() {
        long due = deadline - ttlMs * 2 / 3;
        long pause = BACK_OFF_MS;
        while (true) {
            if (doneWithin(Math.min(due, stopAt()) - now())) return;
            long left = stopAt() - now();
            if (left <= 0 || lost) break;
            try {
                Reply reply = renew(Math.max(100, left / 3)); // one answer that never comes must not use up all the time
                if (reply.status() == 200) {
                    pause = BACK_OFF_MS;
                    due = deadline - ttlMs * 2 / 3;
                    continue;
                }
                due = now() + Math.max(Math.min(reply.retryAfterMs(), left / 3), jitter(pause));
            } catch (Unavailable strange) {
                due = now() + jitter(pause);
            } catch (InterruptedException closed) {
                return;
            }
            pause = Math.min(pause * 2, BACK_OFF_CAP_MS);
        }
        lost = true;
        if (done.getCount() > 0) worker.interrupt();
        if (doneWithin(ttlMs / 6)) return;
        System.err.println("the lease on " + lock + " is lost and the work goes on: ending the process");
        Runtime.getRuntime().halt(113);
    }

    // ---------------------------------------------------------------- the work: its database checks the token (share/pawl/guards/sqlite)

    /**
     * One transaction, which is refused once a later holder has written; returns what it printed. It is run
     * by the command sqlite3 here, as JDBC comes without drivers: with yours, send the same statements
     * through one Connection with setAutoCommit(false).
     */
    private static String guarded(PawlLock lease, String database, String sql)
            throws LeaseLost, IOException, InterruptedException {
        String claim = "INSERT INTO pawl_fence (resource, token) VALUES ('" + lease.lock + "', " + lease.token + "); ";
        String transaction = "BEGIN IMMEDIATE; " + claim + sql + "; COMMIT;";
        Process process = new ProcessBuilder("sqlite3", "-bail", "-cmd", ".timeout 20000", database, transaction)
            .redirectErrorStream(true).start();
        String said = new String(process.getInputStream().readAllBytes(), StandardCharsets.UTF_8).strip();
        boolean interrupted = false;
        while (true) {
            try {
                if (process.waitFor() == 0) break;
                if (said.contains("PAWL1")) throw new LeaseLost("refused by the database: " + said);
                throw new IOException(said);
            } catch (InterruptedException lostMeanwhile) { // a transaction is short: it is waited for
                interrupted = true;
            }
        }
        if (interrupted) Thread.currentThread().interrupt();
        return said;
    }

    /** Reads a number, thinks about it, writes the next one: between the two, nobody else may. */
    private static void count(PawlLock lease, String database, int steps, long pauseMs)
            throws LeaseLost, IOException, InterruptedException {
        for (; steps > 0; steps--) {
            lease.check();
            long value = Long.parseLong(guarded(lease, database, "SELECT value FROM tally WHERE name = '" + lease.lock + "'"));
            lease.sleep(pauseMs);
            guarded(lease, database, "UPDATE tally SET value = " + (value + 1) + " WHERE name = '" + lease.lock + "'");
        }
    }

    private static int run(String[] args) {
        if (args.length != 6) {
            System.err.println("usage: java PawlLock.java LOCK TTL_MS WAIT_MS DATABASE STEPS PAUSE_MS");
            return 125;
        }
        try (PawlLock lease = acquire(args[0], Long.parseLong(args[1]), Long.parseLong(args[2]))) {
            count(lease, args[3], Integer.parseInt(args[4]), Long.parseLong(args[5]));
            return 0;
        } catch (LeaseLost | Held | Unavailable | IOException | InterruptedException error) {
            System.err.println("PawlLock: " + error.getMessage());
            if (error instanceof LeaseLost) return 113;
            if (error instanceof Held) return 114;
            if (error instanceof Unavailable) return 115;
            return error instanceof InterruptedException ? 143 : 1;
        }
    }

    public static void main(String[] args) {
        Thread main = Thread.currentThread();
        CountDownLatch over = new CountDownLatch(1);
        int[] code = {1};
        // SIGTERM starts the hooks and ends the process after them: until the lock is released.
        Thread hook = new Thread(() -> {
            main.interrupt();
            try {
                over.await();
            } catch (InterruptedException never) {
                return;
            }
            Runtime.getRuntime().halt(code[0]);
        });
        Runtime.getRuntime().addShutdownHook(hook);
        try {
            code[0] = run(args);
        } finally {
            over.countDown();
        }
        System.exit(code[0]);
    }
}

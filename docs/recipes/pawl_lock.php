#!/usr/bin/env php
<?php
// A lock of pawl in PHP 8 on the command line, with curl, pcntl and posix (Debian: php-cli, php-curl); the
// work's database is SQLite (php-sqlite3).
//
//     $code = PawlLock\locked('report', 30_000, 60_000, function (PawlLock\Lease $lease): int {
//         ...                  // $lease->token goes with every write to a store that checks it
//         return 0;            // the exit code of the work
//     });
//
// The work runs in a process of its own, while this one renews the lease; so open what it needs, such as the
// database, inside of it. A web request can't do this: there, call $lease->keep() between the steps of the
// work, which renews when it is time and throws LeaseLost when it is over.
//
// What is promised. The work's whole process group gets TERM a quarter of the ttl before the lease can end,
// and KILL a sixth of the ttl later, by a monotonic clock that is read before each request is sent. Nobody
// can stop work while the machine stands still (and this clock stops while it is suspended), so the database
// must check the token; guarded() does it for SQLite.
//
// As a program: pawl_lock.php LOCK TTL_MS WAIT_MS DATABASE STEPS PAUSE_MS counts in a table `tally`, see
// clients.md. Exit codes: 0 done, 1 the work failed, 113 the lease was lost, 114 somebody else has the lock,
// 115 pawld gave no good answer.
// PAWL_SERVER: where pawld is, http://HOST:PORT or unix:/PATH; http://127.0.0.1:7295 unless set.
// PAWL_TOKEN_FILE: a file with the access token, if pawld wants one; read for each request, so it may be changed.

declare(strict_types=1);

namespace PawlLock;

const PATIENCE_MS = 10_000; // how long to go on asking, beyond the wait, when there is no good answer
const BACK_OFF_MS = 100;
const BACK_OFF_CAP_MS = 2_000;

class Held extends \RuntimeException {} // somebody else has the lock, also after the wait
class Unavailable extends \RuntimeException {} // pawld gave no good answer
class LeaseLost extends \RuntimeException {} // stop: the lease is lost, or will end before the next answer may come
class Terminated extends \RuntimeException {} // by a signal

// The first signal that asks for an end, or 0.
final class Signals
{
    public static int $ended = 0;

    public static function check(): void
    {
        if (self::$ended) {
            throw new Terminated('ended by a signal', 128 + self::$ended);
        }
    }
}

function now_ms(): int
{
    return intdiv(hrtime(true), 1_000_000);
}

function jitter(int $ms): int
{
    return random_int(intdiv($ms, 2), $ms);
}

function sleep_ms(int $ms): void
{
    usleep(max(0, $ms) * 1000);
}

// ---------------------------------------------------------------- one call

function server(): string
{
    return getenv('PAWL_SERVER') ?: 'http://127.0.0.1:7295';
}

// [status, reply, milliseconds of Retry-After]; status 0 and why if there was no answer: what became of the
// request isn't known. A signal ends it at once if it is $stoppable.
function call(string $lock, string $verb, array $params, int $timeout_ms, bool $stoppable = false): array
{
    $server = server();
    $unix = str_starts_with($server, 'unix:');
    $curl = curl_init(($unix ? 'http://localhost' : $server) . "/v1/locks/$lock/$verb");
    $retry_after_ms = 0;
    curl_setopt_array($curl, [
        CURLOPT_POSTFIELDS => json_encode($params),
        CURLOPT_RETURNTRANSFER => true,
        CURLOPT_TIMEOUT_MS => $timeout_ms,
        CURLOPT_NOSIGNAL => true,
        CURLOPT_NOPROXY => '*',
        CURLOPT_NOPROGRESS => false, // so that the next is called often
        CURLOPT_PROGRESSFUNCTION => fn () => $stoppable && Signals::$ended ? 1 : 0,
        CURLOPT_HEADERFUNCTION => function ($curl, string $line) use (&$retry_after_ms): int {
            if (preg_match('/^retry-after: *([0-9]{1,6})\s*$/i', $line, $found)) {
                $retry_after_ms = min((int) $found[1] * 1000, PATIENCE_MS);
            }
            return strlen($line);
        },
    ]);
    if ($unix) {
        curl_setopt($curl, CURLOPT_UNIX_SOCKET_PATH, substr($server, strlen('unix:')));
    }
    if ($file = getenv('PAWL_TOKEN_FILE')) {
        curl_setopt($curl, CURLOPT_HTTPHEADER, ['Authorization: Bearer ' . trim((string) file_get_contents($file))]);
    }
    $body = curl_exec($curl);
    $reply = is_string($body) ? json_decode($body, true) : null;
    return is_array($reply) ? [curl_getinfo($curl, CURLINFO_RESPONSE_CODE), $reply, $retry_after_ms] : [0, ['message' => curl_error($curl)], 0];
}

function worth_repeating(int $status): bool
{
    return in_array($status, [0, 408, 429], true) || $status >= 500;
}

// ---------------------------------------------------------------- a lease

class Lease
{
    public readonly string $id;
    public int $token = 0; // goes with every write
    public bool $lost = false;
    private int $deadline = 0; // the lease can't have ended before
    private int $due = 0; // the next renewal
    private int $pause = BACK_OFF_MS;

    public function __construct(public readonly string $lock, public readonly int $ttl_ms)
    {
        $bytes = random_bytes(16);
        $bytes[6] = chr(ord($bytes[6]) & 0x0f | 0x40);
        $bytes[8] = chr(ord($bytes[8]) & 0x3f | 0x80);
        $this->id = vsprintf('%s%s-%s-%s-%s-%s%s%s', str_split(bin2hex($bytes), 4));
    }

    // The lease id was made once: with it, every repetition means the same lease and the same place in the
    // queue.
    public function acquire(int $wait_ms): void
    {
        $begun = now_ms();
        try {
            for ($pause = BACK_OFF_MS;; $pause = min($pause * 2, BACK_OFF_CAP_MS)) {
                $sent = now_ms();
                $left = max(0, $wait_ms - ($sent - $begun));
                $owner = gethostname() . ':' . getmypid();
                $asked = ['lease_id' => $this->id, 'ttl_ms' => $this->ttl_ms, 'wait_ms' => $left, 'owner' => $owner];
                [$status, $reply, $retry_after_ms] = call($this->lock, 'acquire', $asked, $left + 5_000, true);
                Signals::check();
                $message = $reply['message'] ?? '';
                if ($status === 200) {
                    $this->token = $reply['token'];
                    $this->until($sent + ($reply['ttl_ms'] ?? 0));
                    // A grant that came after a wait is counted from before the wait, so it is renewed first,
                    // which tells a deadline to work with.
                    if (now_ms() < $sent + $this->ttl_ms / 3 || $this->renew(5_000)) {
                        return;
                    }
                } elseif ($status === 409) {
                    throw new Held("$this->lock is held by " . ($reply['holder']['owner'] ?? 'somebody'));
                } elseif (!worth_repeating($status)) {
                    throw new Unavailable("pawld refuses: $status $message");
                }
                if (now_ms() > $begun + $wait_ms + PATIENCE_MS) {
                    throw new Unavailable('no good answer from ' . server() . ": $status $message");
                }
                sleep_ms(max($retry_after_ms, jitter($pause)));
                Signals::check();
            }
        } catch (Held $held) {
            throw $held;
        } catch (\Throwable $error) { // also a signal: what may have been granted is given back
            $this->deadline = now_ms() + 1_000;
            $this->release();
            throw $error;
        }
    }

    // To be called often. Renews at a third of the ttl, and again with back-off when there is no good answer;
    // throws when there is no more time.
    public function keep(): void
    {
        $left = $this->deadline - intdiv($this->ttl_ms, 4) - now_ms();
        if ($left > 0 && !$this->lost && now_ms() >= $this->due) {
            if ($this->renew(max(100, intdiv($left, 3)), $retry_after_ms)) { // one answer that never comes must not use up all the time
                $this->pause = BACK_OFF_MS;
            } else {
                $this->due = now_ms() + max(min($retry_after_ms, intdiv($left, 3)), jitter($this->pause));
                $this->pause = min($this->pause * 2, BACK_OFF_CAP_MS);
            }
        }
        if ($left <= 0 || $this->lost) {
            $this->lost = true;
            throw new LeaseLost("the lease on $this->lock is lost");
        }
    }

    // As often as it makes sense; a lease that can't be released ends by itself.
    public function release(): void
    {
        $end = min($this->deadline, now_ms() + 5_000);
        for ($pause = BACK_OFF_MS; now_ms() < $end; $pause = min($pause * 2, BACK_OFF_CAP_MS)) {
            [$status, , $retry_after_ms] = call($this->lock, 'release', ['lease_id' => $this->id], max(100, $end - now_ms()));
            if ($status === 200 || $status === 410 || $this->lost) {
                return;
            }
            sleep_ms(min(max($retry_after_ms, $pause), $end - now_ms()));
        }
    }

    // True if the lease has a new deadline; it is lost when pawld says so.
    private function renew(int $timeout_ms, ?int &$retry_after_ms = null): bool
    {
        $sent = now_ms();
        [$status, $reply, $retry_after_ms] = call($this->lock, 'renew', ['lease_id' => $this->id, 'ttl_ms' => $this->ttl_ms], $timeout_ms);
        if ($status === 200) {
            $this->until($sent + ($reply['ttl_ms'] ?? 0));
        } elseif ($status === 410) {
            $this->lost = true;
        }
        return $status === 200;
    }

    private function until(int $deadline): void
    {
        $this->deadline = $deadline;
        $this->due = $deadline - intdiv($this->ttl_ms * 2, 3);
    }
}

// Runs $work($lease) in a child while the lease is renewed, and releases it when the child and what it
// started have ended. Returns the exit code that $work returned (that of complain() if it threw), or 128 + n
// after a signal. SIGTERM and SIGINT end a wait for the lock, or the work.
function locked(string $lock, int $ttl_ms, int $wait_ms, callable $work): int
{
    $signals = [SIGTERM, SIGINT];
    pcntl_async_signals(true);
    foreach ($signals as $signal) {
        pcntl_signal($signal, function (int $number): void {
            Signals::$ended = Signals::$ended ?: $number;
        });
    }
    $lease = new Lease($lock, $ttl_ms);
    $lease->acquire($wait_ms);
    $child = 0;
    try {
        pcntl_sigprocmask(SIG_BLOCK, $signals); // no signal between the fork and knowing the child
        $child = pcntl_fork();
        if ($child === 0) {
            posix_setpgid(0, 0);
            foreach ($signals as $signal) {
                pcntl_signal($signal, SIG_DFL);
            }
            pcntl_sigprocmask(SIG_UNBLOCK, $signals);
            try {
                exit($work($lease));
            } catch (\Throwable $error) { // the lease is the parent's to release
                exit(complain($error));
            }
        }
        pcntl_sigprocmask(SIG_UNBLOCK, $signals);
        if ($child < 0) {
            throw new \RuntimeException('fork failed');
        }
        while (pcntl_waitpid($child, $status, WNOHANG) === 0) {
            Signals::check();
            $lease->keep();
            sleep_ms(20);
        }
        end_group($child);
        $child = 0;
        return pcntl_wifexited($status) ? pcntl_wexitstatus($status) : 128 + pcntl_wtermsig($status);
    } finally {
        if ($child > 0) {
            end_work($child, intdiv($ttl_ms, 6));
        }
        $lease->release();
    }
}

function end_work(int $child, int $grace_ms): void
{
    $end = now_ms() + $grace_ms;
    posix_kill(-$child, SIGTERM) || posix_kill($child, SIGTERM); // it may not have its group yet
    while (pcntl_waitpid($child, $status, WNOHANG) === 0) {
        if (now_ms() > $end) {
            posix_kill(-$child, SIGKILL) || posix_kill($child, SIGKILL);
        }
        sleep_ms(5);
    }
    end_group($child);
}

// Ends what the child left behind. In a container without an init, dead processes may stay listed, so this
// doesn't wait for ever.
function end_group(int $child): void
{
    for ($tries = 0; $tries < 100 && posix_kill(-$child, SIGKILL); $tries++) {
        sleep_ms(10);
    }
}

// ---------------------------------------------------------------- the work: its database checks the token (share/pawl/guards/sqlite)

// A transaction that is refused once a later holder has written.
function guarded(\SQLite3 $db, Lease $lease, callable $statements): mixed
{
    $db->exec('BEGIN IMMEDIATE');
    try {
        $claim = $db->prepare('INSERT INTO pawl_fence (resource, token) VALUES (?, ?)');
        $claim->bindValue(1, $lease->lock);
        $claim->bindValue(2, $lease->token);
        $claim->execute();
        $result = $statements();
        $db->exec('COMMIT');
        return $result;
    } catch (\Throwable $error) {
        $db->exec('ROLLBACK');
        if (str_contains($error->getMessage(), 'PAWL1')) {
            throw new LeaseLost('refused by the database: ' . $error->getMessage());
        }
        throw $error;
    }
}

// Reads a number, thinks about it, writes the next one: between the two, nobody else may.
function count_up(Lease $lease, string $database, int $steps, int $pause_ms): void
{
    $db = new \SQLite3($database, SQLITE3_OPEN_READWRITE);
    $db->enableExceptions(true);
    $db->busyTimeout(20_000);
    $name = $db->escapeString($lease->lock);
    for (; $steps > 0; $steps--) {
        $value = guarded($db, $lease, fn () => $db->querySingle("SELECT value FROM tally WHERE name = '$name'"));
        sleep_ms($pause_ms);
        guarded($db, $lease, fn () => $db->exec('UPDATE tally SET value = ' . ($value + 1) . " WHERE name = '$name'"));
    }
}

function complain(\Throwable $error): int
{
    fwrite(STDERR, 'pawl_lock.php: ' . $error->getMessage() . "\n");
    return match ($error::class) {
        LeaseLost::class => 113,
        Held::class => 114,
        Unavailable::class => 115,
        Terminated::class => $error->getCode(),
        default => 1,
    };
}

function main(array $args): int
{
    if (count($args) !== 7) {
        fwrite(STDERR, "usage: pawl_lock.php LOCK TTL_MS WAIT_MS DATABASE STEPS PAUSE_MS\n");
        return 125;
    }
    [, $lock, $ttl_ms, $wait_ms, $database, $steps, $pause_ms] = $args;
    try {
        return locked($lock, (int) $ttl_ms, (int) $wait_ms, function (Lease $lease) use ($database, $steps, $pause_ms): int {
            count_up($lease, $database, (int) $steps, (int) $pause_ms);
            return 0;
        });
    } catch (\Throwable $error) {
        return complain($error);
    }
}

if (realpath($_SERVER['SCRIPT_FILENAME']) === __FILE__) {
    exit(main($argv));
}

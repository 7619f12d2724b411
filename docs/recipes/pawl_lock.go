// A lock of pawl in Go 1.19 or later, standard library only.
//
//	err := Locked(ctx, "report", 30*time.Second, time.Minute, func(ctx context.Context, lease *Lease) error {
//		... // lease.Token goes with every write to a store that checks it; ctx is done when the work has to stop
//	})
//
// What is promised. The work's context is cancelled a quarter of the ttl before the lease can end, by a
// monotonic clock that is read before each request is sent. Work that hasn't stopped a sixth of the ttl later
// is ended with its process: Go can't end a goroutine. Nobody can stop a process that is stopped itself (and
// this clock stops while the machine is suspended), so the database must check the token; guarded does it for
// SQLite.
//
// As a program: pawl_lock LOCK TTL_MS WAIT_MS DATABASE STEPS PAUSE_MS counts in a table `tally`, see
// clients.md. Exit codes: 0 done, 1 the work failed, 113 the lease was lost, 114 somebody else has the lock,
// 115 pawld gave no good answer.
// PAWL_SERVER: where pawld is, http://HOST:PORT or unix:/PATH; http://127.0.0.1:7295 unless set.
// PAWL_TOKEN_FILE: a file with the access token, if pawld wants one; read for each request, so it may be changed.
package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	mathrand "math/rand"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	patience   = 10 * time.Second // how long to go on asking, beyond the wait, when there is no good answer
	backOff    = 100 * time.Millisecond
	backOffCap = 2 * time.Second
)

var (
	ErrHeld        = errors.New("somebody else has the lock")
	ErrUnavailable = errors.New("pawld gave no good answer")
	ErrLeaseLost   = errors.New("the lease is lost")
)

// ---------------------------------------------------------------- one call

var base, client = server()

func server() (string, *http.Client) {
	address := os.Getenv("PAWL_SERVER")
	if address == "" {
		address = "http://127.0.0.1:7295"
	}
	transport := &http.Transport{IdleConnTimeout: 30 * time.Second}
	if path := strings.TrimPrefix(address, "unix:"); path != address {
		address = "http://localhost"
		transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", path)
		}
	}
	return address, &http.Client{Transport: transport}
}

type request struct {
	LeaseID string `json:"lease_id"`
	TTL     int64  `json:"ttl_ms,omitempty"`
	Wait    int64  `json:"wait_ms,omitempty"`
	Owner   string `json:"owner,omitempty"`
}

type reply struct {
	status     int           // 0, with why as the message, if there was no answer: what became of the request isn't known
	retryAfter time.Duration // of a 503
	Token      int64         `json:"token"`
	TTL        int64         `json:"ttl_ms"`
	Message    string        `json:"message"`
	Holder     struct {
		Owner string `json:"owner"`
	} `json:"holder"`
}

func (r reply) worthRepeating() bool {
	return r.status == 0 || r.status == 408 || r.status == 429 || r.status >= 500
}

func call(ctx context.Context, lock, verb string, asked request, timeout time.Duration) (answer reply) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	body, _ := json.Marshal(asked)
	r, err := http.NewRequestWithContext(ctx, "POST", base+"/v1/locks/"+lock+"/"+verb, bytes.NewReader(body))
	if err != nil {
		return reply{status: 400, Message: err.Error()}
	}
	if path := os.Getenv("PAWL_TOKEN_FILE"); path != "" {
		token, err := os.ReadFile(path)
		if err != nil {
			return reply{Message: err.Error()}
		}
		r.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
	}
	response, err := client.Do(r)
	if err != nil {
		return reply{Message: err.Error()}
	}
	defer response.Body.Close()
	if err := json.NewDecoder(response.Body).Decode(&answer); err != nil {
		return reply{Message: err.Error()}
	}
	answer.status = response.StatusCode
	if seconds, err := strconv.Atoi(response.Header.Get("Retry-After")); err == nil {
		answer.retryAfter = shorter(time.Duration(seconds)*time.Second, patience)
	}
	return answer
}

func newUUID() (string, error) {
	var b [16]byte
	if _, err := rand.Read(b[:]); err != nil {
		return "", err
	}
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:]), nil
}

func longer(a, b time.Duration) time.Duration {
	if a > b {
		return a
	}
	return b
}

func shorter(a, b time.Duration) time.Duration {
	if a < b {
		return a
	}
	return b
}

func jitter(d time.Duration) time.Duration {
	return d/2 + time.Duration(mathrand.Int63n(int64(d/2)))
}

// Sleeps; false if the context ended meanwhile.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(longer(0, d))
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return ctx.Err() == nil
	}
}

// ---------------------------------------------------------------- a lease

type Lease struct {
	Lock  string
	Token int64 // goes with every write
	id    string
	ttl   time.Duration

	mutex    sync.Mutex
	deadline time.Time // the lease can't have ended before
	lost     bool
}

// Locked runs work while the lease is renewed, and releases it when the work has ended in whatever way. When
// ctx ends, so do a wait for the lock and the work. A work that was told to stop returns its context's error,
// which Locked makes ErrLeaseLost if that was the reason.
func Locked(ctx context.Context, lock string, ttl, wait time.Duration, work func(context.Context, *Lease) error) (err error) {
	lease, err := acquire(ctx, lock, ttl, wait)
	if err != nil {
		return err
	}
	workCtx, stop := context.WithCancel(ctx)
	done, finish := context.WithCancel(context.Background())
	kept := make(chan struct{})
	go func() {
		defer close(kept)
		lease.keepAlive(done, stop)
	}()
	defer func() { // also when the work panics
		finish()
		<-kept
		stop()
		lease.release()
	}()
	err = work(workCtx, lease)
	if errors.Is(err, context.Canceled) && ctx.Err() == nil {
		err = ErrLeaseLost
	}
	return err
}

// A Lease that nobody renews yet. The lease id is made once: with it, every repetition means the same lease
// and the same place in the queue.
func acquire(ctx context.Context, lock string, ttl, wait time.Duration) (*Lease, error) {
	id, err := newUUID()
	if err != nil {
		return nil, err
	}
	lease := &Lease{Lock: lock, id: id, ttl: ttl}
	host, _ := os.Hostname()
	asked := request{LeaseID: id, TTL: ttl.Milliseconds(), Owner: fmt.Sprintf("%s:%d", host, os.Getpid())}
	begun := time.Now()
	giveBack := func(err error) (*Lease, error) { // what may have been granted
		lease.deadline = time.Now().Add(time.Second)
		lease.release()
		return nil, err
	}
	for pause := backOff; ; pause = shorter(pause*2, backOffCap) {
		sent := time.Now()
		left := longer(0, wait-sent.Sub(begun))
		asked.Wait = left.Milliseconds()
		answer := call(ctx, lock, "acquire", asked, left+5*time.Second)
		switch {
		case answer.status == 200:
			lease.Token = answer.Token
			lease.deadline = sent.Add(time.Duration(answer.TTL) * time.Millisecond)
			// A grant that came after a wait is counted from before the wait, so it is renewed first, which tells a
			// deadline to work with.
			if time.Since(sent) < ttl/3 {
				return lease, nil
			}
			if renewed, _ := lease.renew(ctx, 5*time.Second); renewed {
				return lease, nil
			}
		case answer.status == 409:
			return nil, fmt.Errorf("%w: %s is held by %s", ErrHeld, lock, answer.Holder.Owner)
		case !answer.worthRepeating():
			return giveBack(fmt.Errorf("%w: it refuses: %d %s", ErrUnavailable, answer.status, answer.Message))
		}
		if time.Since(begun) > wait+patience {
			return giveBack(fmt.Errorf("%w: %s: %d %s", ErrUnavailable, base, answer.status, answer.Message))
		}
		if !sleep(ctx, longer(answer.retryAfter, jitter(pause))) {
			return giveBack(ctx.Err())
		}
	}
}

// Check tells, between steps of the work, whether it may go on.
func (l *Lease) Check() error {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	if l.lost || time.Until(l.deadline) <= l.ttl/4 {
		return ErrLeaseLost
	}
	return nil
}

// How long until the work has to be told to stop.
func (l *Lease) left() time.Duration {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	if l.lost {
		return 0
	}
	return time.Until(l.deadline) - l.ttl/4
}

func (l *Lease) lose() {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	l.lost = true
}

// Has the lease a new deadline? And how long did pawld ask to wait? It is lost when pawld says so.
func (l *Lease) renew(ctx context.Context, timeout time.Duration) (bool, time.Duration) {
	sent := time.Now()
	answer := call(ctx, l.Lock, "renew", request{LeaseID: l.id, TTL: l.ttl.Milliseconds()}, timeout)
	switch answer.status {
	case 200:
		l.mutex.Lock()
		l.deadline = sent.Add(time.Duration(answer.TTL) * time.Millisecond)
		l.mutex.Unlock()
	case 410:
		l.lose()
	}
	return answer.status == 200, answer.retryAfter
}

// As often as it makes sense; a lease that can't be released ends by itself.
func (l *Lease) release() {
	end := time.Now().Add(shorter(5*time.Second, time.Until(l.deadline)))
	for pause := backOff; time.Now().Before(end); pause = shorter(pause*2, backOffCap) {
		answer := call(context.Background(), l.Lock, "release", request{LeaseID: l.id}, longer(backOff, time.Until(end)))
		if answer.status == 200 || answer.status == 410 || l.lost {
			return
		}
		time.Sleep(shorter(longer(answer.retryAfter, pause), time.Until(end)))
	}
}

// Renews at a third of the ttl, and again with back-off when there is no good answer; calls stop when there
// is no more time. Returns when done.
func (l *Lease) keepAlive(done context.Context, stop func()) {
	pause, next := backOff, l.left()-l.ttl*5/12 // a third of the ttl after the request: 3/4 are left then, less 5/12
	for sleep(done, shorter(next, l.left())) {
		left := l.left()
		if left <= 0 {
			break
		}
		renewed, retryAfter := l.renew(done, longer(backOff, left/3)) // one answer that never comes must not use up all the time
		if renewed {
			pause, next = backOff, l.left()-l.ttl*5/12
		} else {
			next = longer(shorter(retryAfter, left/3), jitter(pause))
			pause = shorter(pause*2, backOffCap)
		}
	}
	if done.Err() != nil {
		return
	}
	l.lose()
	stop()
	if sleep(done, l.ttl/6) {
		fmt.Fprintf(os.Stderr, "the lease on %s is lost and the work goes on: ending the process\n", l.Lock)
		os.Exit(113)
	}
}

// ---------------------------------------------------------------- the work: its database checks the token (share/pawl/guards/sqlite)

// One transaction, which is refused once a later holder has written; returns what it printed. It is run by
// the command sqlite3 here, as database/sql comes without drivers: with yours, send the same statements
// through one sql.Conn.
func guarded(lease *Lease, database, sql string) (string, error) {
	claim := fmt.Sprintf("INSERT INTO pawl_fence (resource, token) VALUES ('%s', %d);", lease.Lock, lease.Token)
	transaction := "BEGIN IMMEDIATE; " + claim + " " + sql + "; COMMIT;"
	out, err := exec.Command("sqlite3", "-bail", "-cmd", ".timeout 20000", database, transaction).CombinedOutput()
	said := strings.TrimSpace(string(out))
	if err != nil && strings.Contains(said, "PAWL1") {
		return "", fmt.Errorf("%w: refused by the database: %s", ErrLeaseLost, said)
	} else if err != nil {
		return "", fmt.Errorf("%w: %s", err, said)
	}
	return said, nil
}

// Reads a number, thinks about it, writes the next one: between the two, nobody else may.
func count(ctx context.Context, lease *Lease, database string, steps int, pause time.Duration) error {
	for ; steps > 0; steps-- {
		said, err := guarded(lease, database, "SELECT value FROM tally WHERE name = '"+lease.Lock+"'")
		if err != nil {
			return err
		}
		value, err := strconv.Atoi(said)
		if err != nil {
			return err
		}
		if !sleep(ctx, pause) {
			return ctx.Err()
		}
		if err := lease.Check(); err != nil {
			return err
		}
		update := fmt.Sprintf("UPDATE tally SET value = %d WHERE name = '%s'", value+1, lease.Lock)
		if _, err := guarded(lease, database, update); err != nil {
			return err
		}
	}
	return nil
}

func run() int {
	if len(os.Args) != 7 {
		fmt.Fprintln(os.Stderr, "usage: pawl_lock LOCK TTL_MS WAIT_MS DATABASE STEPS PAUSE_MS")
		return 125
	}
	var numbers [7]int
	for _, i := range []int{2, 3, 5, 6} {
		var err error
		if numbers[i], err = strconv.Atoi(os.Args[i]); err != nil {
			fmt.Fprintln(os.Stderr, "pawl_lock:", err)
			return 125
		}
	}
	milliseconds := func(i int) time.Duration { return time.Duration(numbers[i]) * time.Millisecond }
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM) // so that the lock is released
	defer cancel()
	err := Locked(ctx, os.Args[1], milliseconds(2), milliseconds(3), func(ctx context.Context, lease *Lease) error {
		return count(ctx, lease, os.Args[4], numbers[5], milliseconds(6))
	})
	if err == nil {
		return 0
	}
	fmt.Fprintln(os.Stderr, "pawl_lock:", err)
	switch {
	case errors.Is(err, ErrLeaseLost):
		return 113
	case errors.Is(err, ErrHeld):
		return 114
	case errors.Is(err, ErrUnavailable):
		return 115
	case ctx.Err() != nil:
		return 143
	}
	return 1
}

func main() {
	os.Exit(run())
}

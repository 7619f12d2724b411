#!/bin/sh
# A lock of pawl in POSIX sh with curl 7.84 or later, setsid (util-linux) and Linux's /proc. `pawl run` does
# this better; this is for where it can't be.
#
# Put your job into work(); it runs as a process of its own while a keep-alive beside it renews the lease.
#
# What is promised. The work's whole process group gets TERM a quarter of the ttl before the lease can end,
# and KILL a sixth of the ttl later. The clock is read before each request is sent, and goes on while the
# machine is suspended. Nobody can stop work while the machine stands still, so the database must check the
# token; guarded() does it for SQLite.
#
# As a program: pawl_lock.sh LOCK TTL_MS WAIT_MS DATABASE STEPS PAUSE_MS counts in a table `tally`, see
# clients.md. Exit codes: 0 done, 1 the work failed, 113 the lease was lost, 114 somebody else has the lock,
# 115 pawld gave no good answer.
# PAWL_SERVER: where pawld is, http://HOST:PORT or unix:/PATH; http://127.0.0.1:7295 unless set.
# PAWL_TOKEN_FILE: a file with the access token, if pawld wants one; read for each request, so it may be changed.
# shellcheck disable=SC2317 # what runs in the trap is reached
set -u

server=${PAWL_SERVER:-http://127.0.0.1:7295}
patience_ms=10000 # how long to go on asking, beyond the wait, when there is no good answer
back_off_ms=100
back_off_cap_ms=2000

# ---------------------------------------------------------------- the work: its database checks the token (share/pawl/guards/sqlite)

# SQL: one transaction, which is refused once a later holder has written; 113 then
guarded() {
    said=$(sqlite3 -bail -cmd '.timeout 20000' "$database" \
        "BEGIN IMMEDIATE; INSERT INTO pawl_fence (resource, token) VALUES ('$PAWL_LOCK', $PAWL_TOKEN); $1; COMMIT;" 2>&1) && return 0
    echo "pawl_lock.sh: $said" >&2
    case $said in *PAWL1*) return 113 ;; esac
    return 1
}

# Reads a number, thinks about it, writes the next one: between the two, nobody else may.
work() {
    while [ "$steps" -gt 0 ]; do
        guarded "SELECT value FROM tally WHERE name = '$PAWL_LOCK'" || return
        value=$said
        sleep "$(seconds "$pause_ms")"
        guarded "UPDATE tally SET value = $((value + 1)) WHERE name = '$PAWL_LOCK'" || return
        steps=$((steps - 1))
    done
}

# ---------------------------------------------------------------- small things

# milliseconds since boot, suspend included
now_ms() {
    read -r up _ </proc/uptime
    echo "${up%.*}${up#*.}0"
}

# MS -> seconds with a point, for sleep and curl
seconds() {
    printf '%d.%03d\n' $(($1 / 1000)) $(($1 % 1000))
}

# COMMAND...: in the background, and waits for it, since a shell handles a signal only between commands, and
# within `wait`
aside() {
    "$@" &
    child=$!
    wait "$child"
    result=$?
    child=
    return "$result"
}

sleep_ms() {
    if [ "$1" -gt 0 ]; then aside sleep "$(seconds "$1")"; fi
}

# NAME -> the whole number of that name in $reply, or 0
number() {
    found=$(printf '%s\n' "$reply" | sed -n 's/.*"'"$1"'": *\([0-9][0-9]*\).*/\1/p')
    echo "${found:-0}"
}

# VERB TIMEOUT_MS QUERY -> $status (000 without an answer: what became of the request isn't known), $reply (or
# why there is none), $retry_after_ms
call() {
    status=000 reply='' retry_after=''
    aside curl --silent --show-error --stderr "$folder/$side.error" --request POST --noproxy '*' --globoff --max-time "$(seconds "$2")" ${socket:+--unix-socket "$socket"} \
        --output "$folder/$side.reply" --write-out '%{http_code} %header{retry-after}\n' \
        ${PAWL_TOKEN_FILE:+--header @/dev/fd/3} "$base/v1/locks/$PAWL_LOCK/$1?lease_id=$lease_id$3" \
        >"$folder/$side.status" 3<<END && read -r status retry_after <"$folder/$side.status" && reply=$(cat "$folder/$side.reply")
${PAWL_TOKEN_FILE:+Authorization: Bearer $(tr -d '\r\n' <"$PAWL_TOKEN_FILE")}
END
    if [ "$status" = 000 ]; then reply=$(cat "$folder/$side.error" 2>/dev/null); fi
    case $retry_after in [1-9] | [1-9][0-9]) retry_after_ms=$(at_most $((retry_after * 1000)) "$patience_ms") ;; *) retry_after_ms=0 ;; esac
}

# A number of milliseconds -> the same, or the second one if that is smaller / greater
at_most() { if [ "$1" -gt "$2" ]; then echo "$2"; else echo "$1"; fi; }
at_least() { if [ "$1" -lt "$2" ]; then echo "$2"; else echo "$1"; fi; }

fail() {
    echo "pawl_lock.sh: $2" >&2
    exit "$1"
}

# ---------------------------------------------------------------- a lease

# TIMEOUT_MS: true if the lease has a new $deadline
renew() {
    sent=$(now_ms)
    call renew "$1" "&ttl=${ttl_ms}ms"
    [ "$status" = 200 ] || return 1
    deadline=$((sent + $(number ttl_ms)))
}

# The lease id was made once: with it, every repetition means the same lease and the same place in the queue.
acquire() {
    begun=$(now_ms)
    back_off=$back_off_ms
    while :; do
        sent=$(now_ms)
        left=$(at_least $((wait_ms - sent + begun)) 0)
        call acquire $((left + 5000)) "&ttl=${ttl_ms}ms&wait=${left}ms&owner=$(uname -n):$$"
        case $status in
        200)
            PAWL_TOKEN=$(number token)
            deadline=$((sent + $(number ttl_ms)))
            # A grant that came after a wait is counted from before the wait, so it is renewed first, which
            # tells a deadline to work with.
            if [ "$(now_ms)" -lt $((sent + ttl_ms / 3)) ] || renew 5000; then return; fi
            ;;
        000 | 408 | 429 | 5??) ;;
        409)
            lease_id=
            fail 114 "somebody else has the lock: $reply"
            ;;
        *) fail 115 "pawld refuses: $status $reply" ;;
        esac
        if [ "$(now_ms)" -gt $((begun + wait_ms + patience_ms)) ]; then fail 115 "no good answer from $server: $status $reply"; fi
        sleep_ms "$(at_least "$retry_after_ms" "$back_off")"
        back_off=$(at_most $((back_off * 2)) "$back_off_cap_ms")
    done
}

# As often as it makes sense; a lease that can't be released ends by itself.
release() {
    end=$(($(now_ms) + 5000))
    back_off=$back_off_ms
    while [ "$(now_ms)" -lt "$end" ]; do
        call release "$(at_most 2000 "$ttl_ms")" ''
        case $status in 200 | 410) return ;; esac
        if [ -e "$folder/lost" ]; then return; fi
        sleep_ms "$(at_least "$retry_after_ms" "$back_off")"
        back_off=$(at_most $((back_off * 2)) "$back_off_cap_ms")
    done
}

# SIGNAL: to the work's process group, or to the process that is about to make it
signal_work() {
    kill -s "$1" -- "-$work" 2>/dev/null || kill -s "$1" "$work" 2>/dev/null
}

end_work() {
    signal_work TERM
    sleep_ms $((ttl_ms / 6))
    signal_work KILL
}

# Beside the work: renews at a third of the ttl, and again with back-off when there is no good answer. Ends
# the work when there is no more time.
keep_alive() {
    side=keeper
    trap 'kill "$child" 2>/dev/null; exit 0' TERM
    back_off=$back_off_ms
    due=$((deadline - ttl_ms * 2 / 3))
    while :; do
        sleep_ms $(($(at_most "$due" $((deadline - ttl_ms / 4))) - $(now_ms)))
        if ! kill -0 "$work" 2>/dev/null; then exit 0; fi
        left=$((deadline - ttl_ms / 4 - $(now_ms)))
        if [ "$left" -le 0 ]; then break; fi
        if renew "$(at_least $((left / 3)) 100)"; then # one answer that never comes must not use up all the time
            back_off=$back_off_ms
            due=$((deadline - ttl_ms * 2 / 3))
        elif [ "$status" = 410 ]; then
            break
        else
            due=$(($(now_ms) + $(at_least "$(at_most "$retry_after_ms" $((left / 3)))" "$back_off")))
            back_off=$(at_most $((back_off * 2)) "$back_off_cap_ms")
        fi
    done
    : >"$folder/lost"
    echo "pawl_lock.sh: the lease on $PAWL_LOCK is lost" >&2
    end_work
}

# On every way out: first the work, then the keep-alive, then the lease.
finish() {
    ending=$?
    trap '' HUP INT TERM
    if [ -n "$child" ]; then kill "$child" 2>/dev/null; fi
    if [ -n "$work" ]; then
        if [ -z "$work_ended" ]; then
            end_work &
            wait "$work" 2>/dev/null
        fi
        tries=0 # what it left behind; in a container without an init, dead processes may stay listed, so this doesn't wait for ever
        while [ "$tries" -lt 20 ] && kill -s KILL -- "-$work" 2>/dev/null; do
            sleep 0.05
            tries=$((tries + 1))
        done
    fi
    if [ -n "$keeper" ]; then kill "$keeper" 2>/dev/null; fi
    if [ -n "$lease_id" ]; then release; fi
    rm -rf "$folder"
    exit "$ending"
}

# ---------------------------------------------------------------- main

if [ "${1:-}" = --work ]; then
    database=$2 steps=$3 pause_ms=$4
    work
    exit
fi
if [ $# -ne 6 ]; then
    echo 'usage: pawl_lock.sh LOCK TTL_MS WAIT_MS DATABASE STEPS PAUSE_MS' >&2
    exit 125
fi
PAWL_LOCK=$1 ttl_ms=$2 wait_ms=$3
shift 3
case $server in
unix:*) socket=${server#unix:} base=http://localhost ;;
*) socket='' base=$server ;;
esac
lease_id=$(cat /proc/sys/kernel/random/uuid)
work='' work_ended='' keeper='' child='' side=main
folder=$(mktemp -d) || exit 1
trap finish EXIT
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 143' TERM

acquire
export PAWL_LOCK PAWL_TOKEN
setsid sh "$0" --work "$@" &
work=$!
keep_alive &
keeper=$!
wait "$work" 2>/dev/null
result=$?
work_ended=yes
if [ -e "$folder/lost" ]; then result=113; fi
exit "$result"

#!/bin/sh
# The arrows between the rooms, read off the #include lines: check-includes.sh [--self-test | FOLDER]
#
# Without an argument: first the self-test, in which each rule must catch a file made to break it (and a sound tree must pass), then the sources. The rules
# are those of docs/internals.md: main > daemon > api > broker > store.h < redis store, and each library behind a wall of its own.
set -eu
# shellcheck source=tests/static/verdict.sh
. "$(dirname "$0")/verdict.sh"
AWK=${AWK:-awk}

# Reads "FILE:LINE:INCLUDED" lines, INCLUDED as written with its <> or "". Prints one line per breach.
rules() {
    "$AWK" -F '\t' '
    function breach(why) {
        printf "%s:%s: includes %s: %s\n", file, line, shown, why
    }
    function is_library() {
        return inc ~ /^(event2\/|event|evdns|evhttp|evutil|hiredis|jansson|uuid\/|uthash|utlist|utarray|utstring|check\.h|openssl\/|valgrind\/|curl\/)/
    }
    # How far up in the broker a file of it is; 0: in no place.
    function level(of) {
        return index(" broker_state broker_time broker_news broker_request broker_vouch broker_lines broker_acquire broker_listing broker_calls broker_undo broker ", " " of " ")
    }
    {
        file = $1; line = $2; shown = $3
        quoted = substr(shown, 1, 1) == "\""
        inc = substr(shown, 2, length(shown) - 2)
        base = file
        sub(/.*\//, "", base)
        stem = base
        sub(/\.[ch]$/, "", stem)
        room = file
        sub(/\/.*/, "", room)
        into = inc
        if (!sub(/\/.*/, "", into))
            into = ""
        library = !quoted && is_library()
        in_daemon = quoted && into == "daemon"
        included = inc
        sub(/.*\//, "", included)
        sub(/\.h$/, "", included)

        if (quoted && inc != "config.h" && into !~ /^(proto|daemon|client|tests)$/)
            breach("a header of ours is named from the top, such as \"proto/text.h\"")
        if (!quoted && into ~ /^(proto|daemon|client|tests)$/)
            breach("a header of ours stands in quotes")
        if (quoted && is_library())
            breach("a header of a library stands in <>")
        if (quoted && inc ~ /\.c$/)
            breach("a .c file is no header")

        # rooms
        if (room == "proto" && quoted && into != "proto" && inc != "config.h")
            breach("proto knows proto alone")
        if (room == "daemon" && quoted && into ~ /^(client|tests)$/)
            breach("the daemon knows neither client nor tests")
        if (room == "client" && quoted && into ~ /^(daemon|tests)$/)
            breach("the client knows neither daemon nor tests")

        # libraries
        if (room ~ /^(proto|daemon|client)$/) {
            if (inc ~ /^jansson/ && file != "proto/json.c")
                breach("only proto/json.c sees jansson")
            if (inc ~ /^openssl\// && !(room == "daemon" && stem ~ /^(access|tls_config|tls_pem|tls_stream)$/))
                breach("only daemon/access.c, tls_config, tls_pem and tls_stream see OpenSSL")
            if (inc ~ /^curl\// && file != "client/wire.c")
                breach("only client/wire.c sees libcurl")
            if (inc ~ /^(hiredis|async\.h|sds\.h|read\.h|adapters\/)/ && !(room == "daemon" && stem ~ /^redis_/))
                breach("only daemon/redis_* sees hiredis")
            if (inc ~ /^(event2\/|event|evdns|evhttp|evutil)/ && !(room == "daemon" && stem ~ /^(http_conn|http_conns|http_run|http_front|listener|handover|stream|redis_link|redis_dial|alarm|busy_poll|daemon)$/))
                breach("only http_conn, http_conns, http_run, http_front, listener, handover, stream, redis_link, redis_dial, alarm, busy_poll and daemon see libevent")
        }

        if (room != "daemon")
            next

        # the pure ones
        if (stem ~ /^(heap|clock|wait_queue|lease_table|name_hash|prefix_set)$/) {
            if (library && inc !~ /^ut(hash|list|array)\.h$/)
                breach("the pure modules know no library")
            if (in_daemon && included !~ /^(heap|clock|wait_queue|lease_table|name_hash|prefix_set)$/)
                breach("the pure modules know no other module but each other")
        }
        # the way down: main > daemon > api > broker > store.h < redis store
        if (base == "main.c" && (library || (quoted && inc !~ /^(config\.h|daemon\/daemon\.h|daemon\/options\.h)$/)))
            breach("main knows daemon, options and libc")
        if (in_daemon && included == "daemon" && stem !~ /^(main|daemon)$/)
            breach("only main sees the daemon as a whole")
        if (in_daemon && included ~ /^(drain|takeover|heartbeat|daemon_options)$/ && stem !~ /^(daemon|drain|takeover|heartbeat|daemon_options)$/)
            breach("only the daemon sees its parts: drain, takeover, heartbeat and daemon_options")
        if (in_daemon && included ~ /^(api|router)/ && stem !~ /^(api_.*|api|router|daemon)$/)
            breach("nothing below the api looks up at it")
        if (in_daemon && included == "broker" && stem !~ /^(api_.*|api|router|daemon|drain|heartbeat|broker|broker_.*)$/)
            breach("nothing below the broker looks up at it")
        if (in_daemon && included ~ /^broker_/ && stem !~ /^broker(_.*)?$/)
            breach("the broker is seen through broker.h")
        if (in_daemon && included ~ /^broker_/ && level(included) > level(stem))
            breach("in the broker the arrows go as told in broker_state.h")
        if (in_daemon && included ~ /^redis_/ && included != "redis_url" && stem !~ /^(redis_.*|daemon|daemon_options)$/)
            breach("the store is seen through store.h; only the daemon, which builds it, and its options name redis_*")
        if (in_daemon && included == "redis_url" && stem !~ /^(redis_.*|daemon|daemon_options|options.*)$/)
            breach("the store is seen through store.h; only options and daemon know the URL it lives at")
        if (in_daemon && included ~ /^redis_(calls|hints|store)$/ && stem ~ /^redis_/ && stem != included && stem != "redis_store")
            breach("redis_store is above the other redis_*, and alone sees redis_calls and redis_hints")
        if (in_daemon && included == "redis_question" && stem ~ /^redis_/ && stem !~ /^redis_(question|calls)$/)
            breach("only redis_calls asks by redis_question")
        if (in_daemon && included == "redis_flight" && stem ~ /^redis_/ && stem !~ /^redis_(flight|calls)$/)
            breach("what is in flight is seen by redis_calls alone")
        if (stem == "redis_flight" && in_daemon && included ~ /^redis_/ && included !~ /^redis_(flight|link)$/)
            breach("redis_flight knows the commands of the link, and not what they are for")
        if (in_daemon && included == "redis_dial" && stem ~ /^redis_/ && stem !~ /^redis_(dial|link)$/)
            breach("only redis_link dials")
        if (stem == "redis_dial" && in_daemon && included ~ /^redis_/ && included !~ /^redis_(dial|url)$/)
            breach("redis_dial is below the link")
        if (in_daemon && included ~ /^redis_(input|output)$/ && stem != included && stem != "redis_link")
            breach("bytes to and from Redis go through redis_link")
        if (stem ~ /^redis_(input|output)$/ && in_daemon && included ~ /^redis_/ && included != stem)
            breach("redis_input and redis_output are below the link, and know nothing of each other")
        if (stem ~ /^redis_(life|answer)$/ && in_daemon && included ~ /^redis_/ && included !~ /^redis_(life|answer|link|script)$/)
            breach("redis_life and redis_answer are the lowest but for the link")
        if (stem ~ /^redis_/ && in_daemon && included ~ /^http/)
            breach("the store knows nothing of HTTP")
        if (stem == "store" && in_daemon && included ~ /^(http|redis)/)
            breach("store.h is a seam: it names neither side")
        if (stem ~ /^(http|http_.*|listener|stream)$/ && in_daemon && included ~ /^(store|lease_table|wait_queue)$/)
            breach("the HTTP front knows nothing of leases")
        if (in_daemon && included == "http_conn" && stem !~ /^http_(conn|conns|run|exchange|stream)$/)
            breach("http_conn.h is private to the connections: others see http_conns.h and http.h")
        if (stem ~ /^(broker|broker_.*|store)$/ && in_daemon && included ~ /^http/)
            breach("the broker is called by the api, and answers it; it knows nothing of HTTP")
    }'
}

# FOLDER -> breaches on stdout
scan() {
    (
        cd "$1"
        for room in proto daemon client; do
            if [ -d "$room" ]; then find "$room" -name '*.[ch]' -type f -print; fi
        done | sort | while IFS= read -r f; do
            sed -n '/^[ \t]*#[ \t]*include[ \t]*[<"]/{=;p;}' "$f" | "$AWK" -v file="$f" '
                NR % 2 == 1 { line = $0; next }
                { if (match($0, /[<"][^>"]*[>"]/)) printf "%s\t%s\t%s\n", file, line, substr($0, RSTART, RLENGTH) }'
        done
    ) | rules
}

self_test() {
    begin_self_test
    # FILE|INCLUDED|yes: is a breach, no: is not
    while IFS='|' read -r file included breach; do
        [ -n "$file" ] || continue
        rm -rf "$tmp/tree"
        mkdir -p "$tmp/tree/$(dirname "$file")"
        printf '/* story */\n#ifdef HAVE_CONFIG_H\n#include "config.h"\n#endif\n#include <stdio.h>\n#include %s\n' "$included" >"$tmp/tree/$file"
        found=no
        if scan "$tmp/tree" | grep -q "^$file:6: "; then found=yes; fi
        if [ "$found" = "$breach" ] && [ "$(scan "$tmp/tree" | grep -vc "^$file:6: ")" -eq 0 ]; then
            passed=$((passed + 1))
        else
            echo "self-test: $file with $included: breach expected: $breach, found: $found"
            failed=$((failed + 1))
        fi
    done <<'CASES'
proto/json.c|<jansson.h>|no
proto/params.c|<jansson.h>|yes
daemon/api_locks.c|<jansson.h>|yes
client/pawl.c|<jansson.h>|yes
proto/text.c|"daemon/log.h"|yes
proto/text.c|"proto/utf8.h"|no
proto/lease_id.c|<uuid/uuid.h>|no
proto/text.c|"text.h"|yes
proto/text.c|<proto/text.h>|yes
daemon/redis_link.c|<hiredis/async.h>|no
daemon/redis_store.h|<hiredis/hiredis.h>|no
daemon/broker.c|<hiredis/hiredis.h>|yes
daemon/dev_redis.c|<hiredis/hiredis.h>|yes
daemon/redis_store.c|"hiredis/hiredis.h"|yes
daemon/http_conn.c|<event2/event.h>|no
daemon/http_conn.h|<event2/util.h>|no
daemon/http_conns.c|<event2/event.h>|no
daemon/http_run.c|<event2/event.h>|no
daemon/http_exchange.c|<event2/event.h>|yes
daemon/http_stream.c|"daemon/http_conn.h"|no
daemon/http_front.c|"daemon/http_conn.h"|yes
daemon/http_front.c|"daemon/http_conns.h"|no
daemon/router.c|"daemon/http_conn.h"|yes
daemon/listener.c|<event2/event.h>|no
daemon/handover.c|<event2/event.h>|no
daemon/redis_link.c|<event2/event.h>|no
daemon/redis_dial.c|<event2/dns.h>|no
daemon/daemon.c|<event2/event.h>|no
daemon/broker.c|<event2/event.h>|yes
daemon/http_reader.c|<event2/buffer.h>|yes
daemon/redis_store.c|<event2/event.h>|yes
daemon/clock.h|<event.h>|yes
daemon/heap.c|"daemon/heap.h"|no
daemon/heap.c|"daemon/log.h"|yes
daemon/lease_table.c|<uthash.h>|no
daemon/lease_table.c|"daemon/heap.h"|no
daemon/lease_table.c|"daemon/name_hash.h"|no
daemon/name_hash.c|"daemon/log.h"|yes
daemon/lease_table.c|"daemon/store.h"|yes
daemon/lease_table.c|"proto/lease_id.h"|no
daemon/wait_queue.c|<uuid/uuid.h>|yes
daemon/clock.c|<time.h>|no
daemon/broker.c|"daemon/store.h"|no
daemon/broker.c|"daemon/redis_store.h"|yes
daemon/broker.c|"daemon/redis_url.h"|yes
daemon/broker.c|"daemon/http.h"|yes
daemon/broker.c|"daemon/api_locks.h"|yes
daemon/broker.c|"daemon/broker_news.h"|no
daemon/broker_news.c|"daemon/broker_state.h"|no
daemon/broker_time.c|"daemon/broker_news.h"|yes
daemon/broker_news.c|"daemon/http.h"|yes
daemon/broker_state.h|"daemon/broker.h"|no
daemon/api_locks.c|"daemon/broker_state.h"|yes
daemon/daemon.c|"daemon/broker_state.h"|yes
daemon/redis_store.c|"daemon/broker_news.h"|yes
daemon/api_locks.c|"daemon/broker.h"|no
daemon/api_admin.c|"daemon/redis_link.h"|yes
daemon/redis_store.c|"daemon/broker.h"|yes
daemon/redis_store.c|"daemon/api_locks.h"|yes
daemon/redis_link.c|"daemon/http.h"|yes
daemon/redis_store.c|"daemon/redis_calls.h"|no
daemon/redis_calls.c|"daemon/redis_question.h"|no
daemon/redis_calls.c|"daemon/redis_store.h"|yes
daemon/redis_hints.c|"daemon/redis_calls.h"|yes
daemon/redis_store.c|"daemon/redis_question.h"|yes
daemon/redis_answer.c|"daemon/redis_question.h"|yes
daemon/redis_calls.c|"daemon/redis_flight.h"|no
daemon/redis_store.c|"daemon/redis_flight.h"|yes
daemon/redis_flight.h|"daemon/redis_link.h"|no
daemon/redis_flight.c|"daemon/redis_backlog.h"|yes
daemon/redis_life.h|"daemon/redis_link.h"|no
daemon/redis_link.c|"daemon/redis_dial.h"|no
daemon/redis_sentinel.c|"daemon/redis_dial.h"|yes
daemon/redis_dial.c|"daemon/redis_url.h"|no
daemon/redis_dial.c|"daemon/redis_link.h"|yes
daemon/redis_link.c|"daemon/redis_output.h"|no
daemon/redis_question.c|"daemon/redis_output.h"|yes
daemon/redis_input.c|"daemon/redis_output.h"|yes
daemon/redis_output.c|"daemon/redis_link.h"|yes
daemon/redis_input.h|<hiredis/hiredis.h>|no
daemon/redis_input.c|<event2/event.h>|yes
daemon/redis_output.c|"daemon/stream.h"|no
daemon/redis_store.c|"daemon/store.h"|no
daemon/redis_store.c|"daemon/redis_script.h"|no
daemon/store.h|"daemon/redis_store.h"|yes
daemon/http_conn.c|"daemon/broker.h"|yes
daemon/http_conn.c|"daemon/store.h"|yes
daemon/http_conn.c|"daemon/router.h"|yes
daemon/log.c|"daemon/daemon.h"|yes
daemon/options.c|"daemon/redis_url.h"|no
daemon/options.c|"daemon/redis_store.h"|yes
daemon/main.c|"daemon/daemon.h"|no
daemon/main.c|"daemon/options.h"|no
daemon/main.c|"daemon/log.h"|yes
daemon/main.c|"proto/text.h"|yes
daemon/main.c|<event2/event.h>|yes
daemon/main.c|<signal.h>|no
daemon/daemon.c|"daemon/redis_store.h"|no
daemon/daemon.c|"daemon/drain.h"|no
daemon/drain.c|"daemon/broker.h"|no
daemon/drain.c|"daemon/api.h"|yes
daemon/drain.c|<event2/event.h>|yes
daemon/takeover.c|"daemon/drain.h"|no
daemon/takeover.c|"daemon/broker.h"|yes
daemon/daemon_options.c|"daemon/redis_store.h"|no
daemon/options.c|"daemon/daemon_options.h"|yes
daemon/http_front.c|"daemon/drain.h"|yes
daemon/alarm.c|<event2/event.h>|no
daemon/daemon.c|"client/pawl.h"|yes
daemon/daemon.c|"tests/lib/check_main.h"|yes
client/pawl.c|"daemon/http.h"|yes
client/pawl.c|"proto/errors.h"|no
client/wire.c|<curl/curl.h>|no
daemon/tls_config.c|<openssl/ssl.h>|no
daemon/tls_pem.c|<openssl/pem.h>|no
daemon/tls_stream.c|<openssl/ssl.h>|no
daemon/small_file.c|<openssl/ssl.h>|yes
daemon/tls_config.h|"daemon/stream.h"|no
daemon/http_conn.c|<openssl/ssl.h>|yes
daemon/redis_link.c|<openssl/err.h>|yes
client/wire.c|<openssl/ssl.h>|yes
client/pawl.c|<curl/curl.h>|yes
daemon/access.c|<openssl/evp.h>|no
daemon/auth.c|<openssl/evp.h>|yes
client/wire.c|<openssl/evp.h>|yes
client/wire.h|<curl/curl.h>|yes
daemon/broker.c|<curl/curl.h>|yes
daemon/router.c|"daemon/heap.c"|yes
CASES
    end_self_test
}

verdict "${1:-}" "${TOP_SRCDIR:-$(dirname "$0")/../..}"

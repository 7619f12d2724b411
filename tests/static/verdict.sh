# shellcheck shell=sh
# What the static checks in sh share; sourced by them, not run.
#
# A check defines scan (FOLDER or PROGRAM -> breaches on stdout, one a line) and self_test, in which each breach is planted and must be found: it starts with
# begin_self_test, which leaves a folder $tmp, counts in $passed and $failed, and ends with end_self_test.
name=$(basename "$0" .sh)
passed=0
failed=0

begin_self_test() {
    tmp=$(mktemp -d)
    trap 'rm -rf "$tmp"' EXIT
    trap 'exit 1' HUP INT TERM
}

end_self_test() {
    echo "$name self-test: $passed passed, $failed failed"
    [ "$failed" -eq 0 ]
}

check() {
    breaches=$(scan "$1")
    if [ -n "$breaches" ]; then
        printf '%s\n' "$breaches"
        echo "$name: $passed passed, $(printf '%s\n' "$breaches" | wc -l) failed"
        return 1
    fi
    echo "$name: $((passed + 1)) passed, 0 failed"
}

# ARGUMENT OF THE CHECK, WHAT IT LOOKS AT WITHOUT ONE
verdict() {
    case $1 in
    --self-test)
        self_test
        ;;
    '')
        self_test
        check "$2"
        ;;
    *)
        check "$1"
        ;;
    esac
}

"""The checker sees: histories made by hand, each with one thing wrong, or with what looks wrong and isn't."""

import pytest

from chaos.checker import judge

TTL = 10_000


class Book:
    """Writes a history. Times are seconds; a call takes from `at` to `at` + 0.01."""

    def __init__(self):
        self.records = []

    def call(self, verb, lease, at, status=200, lock="l", node=0, ttl_ms=TTL, took=0.01, told_ms=None, waited_ms=0, token=None, **terms):
        record = {"kind": "call", "verb": verb, "lock": lock, "lease": lease, "client": 1, "node": node, "sent": at, "got": at + took, "status": status,
                  "token": token, "ask_ttl_ms": ttl_ms, "wait_ms": 0, "waited_ms": waited_ms, **terms}
        if status == 200 and verb in ("acquire", "renew"):
            record["ttl_ms"] = ttl_ms if told_ms is None else told_ms
        self.records.append(record)
        return self

    def acquire(self, lease, at, token, **more):
        return self.call("acquire", lease, at, token=token, **more)

    def renew(self, lease, at, token=None, **more):
        return self.call("renew", lease, at, token=token, **more)

    def release(self, lease, at, token=None, **more):
        return self.call("release", lease, at, token=token, **more)

    def fault(self, what, start, stop=None, node=None, loss=False):
        number = len(self.records)
        self.records.append({"kind": "fault", "id": number, "what": what, "phase": "begin", "before": start, "after": start + 0.01, "node": node,
                             "loss": loss})
        if stop is not None:
            self.records.append({"kind": "fault", "id": number, "what": what, "phase": "end", "before": stop - 0.01, "after": stop, "node": node})
        return self

    def lose(self, at):
        return self.fault("redis_flush", at, at + 0.1, loss=True)

    def switch(self, at):
        """A failover: all agree about another master from `at` to `at` + 1."""
        return self.fault("switch", at, at + 1, loss=True)

    def write(self, lease, at, token, seq, accepted=True):
        self.records.append({"kind": "write", "lock": "l", "lease": lease, "token": token, "seq": seq, "accepted": accepted, "before": at, "after": at})
        return self

    def found(self):
        return sorted({promise for promise, _, _ in judge(self.records).violations})


@pytest.fixture
def book():
    return Book()


def test_a_sound_history_has_nothing(book):
    book.acquire("a", 1, 5).renew("a", 2, 5).write("a", 2, 5, 1).release("a", 3, 5).acquire("b", 3.1, 6).write("b", 4, 6, 2).write("a", 5, 5, 3, accepted=False)
    assert book.found() == []


# ---------------------------------------------------------------- P1


def test_p1_two_leases_at_once(book):
    assert book.acquire("a", 1, 5).acquire("b", 2, 6).found() == ["P1"]


def test_p1_also_when_the_calls_overlap(book):
    assert book.acquire("a", 1, 6, took=2).acquire("b", 1, 5, took=2.5).found() == ["P1"]


def test_p1_a_lease_ends_with_its_ttl(book):
    assert book.acquire("a", 1, 5, ttl_ms=1000).acquire("b", 2, 6).found() == []
    assert book.acquire("c", 2.5, 7).found() == ["P1"]


def test_p1_the_ttl_counts_from_the_sending_and_what_was_waited(book):
    """A reply that took long to be read says nothing of the time after it was written."""
    assert book.acquire("a", 1, 5, ttl_ms=1000, took=0.9).acquire("b", 1.995, 6).found() == []
    waited = Book().acquire("a", 1, 5, ttl_ms=1000, took=3, waited_ms=2900).acquire("b", 4.5, 6)
    assert waited.found() == ["P1"]


def test_p1_a_release_that_was_only_sent_ends_it(book):
    assert book.acquire("a", 1, 5).release("a", 2, status=None).acquire("b", 2.1, 6).found() == []


def test_p1_a_renewal_lengthens_and_shortens(book):
    assert book.acquire("a", 1, 5, ttl_ms=1000).renew("a", 1.5, 5).acquire("b", 4, 6).found() == ["P1"]
    assert Book().acquire("a", 1, 5).renew("a", 1.5, 5, ttl_ms=1000).acquire("b", 3, 6).found() == []
    assert Book().acquire("a", 1, 5).renew("a", 1.5, status=None, ttl_ms=1000).acquire("b", 3, 6).found() == []
    assert Book().acquire("a", 1, 5).renew("a", 1.5, status=503, ttl_ms=1000).acquire("b", 2.3, 6).found() == ["P1"]


def test_p1_a_break_ends_it(book):
    assert book.acquire("a", 1, 5).call("break", None, 2).acquire("b", 2.1, 6).found() == []


def test_p1_other_locks_are_others(book):
    assert book.acquire("a", 1, 5).acquire("b", 2, 6, lock="m").found() == []


def test_p1_a_loss_alone_excuses_nothing(book):
    assert book.acquire("a", 1, 5).lose(2).acquire("b", 6, 6).found() == ["P1"]


@pytest.mark.parametrize("what", ["node_stop", "net_cut", "net_hole", "net_stall", "net_slow", "net_blind", "net_half", "node_starved"])
def test_p1_its_node_was_away_in_the_window(book, what):
    book.acquire("a", 1, 5).lose(2).acquire("b", 6, 6)
    assert Book.found(with_fault(book, what, 1.5, 2.05, 0)) == [], "into the loss"
    assert Book.found(with_fault(book, what, 4, 4.5, 0)) == [], "in the window"
    assert Book.found(with_fault(book, what, 5, None, None)) == [], "to the end, all nodes"
    assert Book.found(with_fault(book, what, 1.5, 1.9, 0)) == ["P1"], "before the loss"
    assert Book.found(with_fault(book, what, 2.5, 3, 1)) == ["P1"], "another node"


@pytest.mark.parametrize("what", ["net_jitter", "redis_stop", "redis_pause", "redis_client_kill", "redis_kill", "failover_asked", "failover_kill",
                                  "failover_stop", "replica_kill", "sentinel_kill", "sentinel_stop", "sentinels_away"])
def test_p1_what_the_window_has_room_for_is_no_excuse(book, what):
    assert Book.found(with_fault(book.acquire("a", 1, 5).lose(2).acquire("b", 6, 6), what, 1.9, 5, None)) == ["P1"]


@pytest.mark.parametrize("what", ["node_kill", "node_term"])
def test_p1_its_node_died(book, what):
    book.acquire("a", 1, 5).lose(2).acquire("b", 6, 6)
    assert Book.found(with_fault(book, what, 1.5, 1.6, 0)) == [], "before the loss: it knew no more of the lease"
    assert Book.found(with_fault(book, what, 0.5, 0.6, 0)) == ["P1"], "before the lease"
    assert Book.found(with_fault(book, what, 7, 7.5, 0)) == ["P1"], "afterwards"


def test_p1_a_node_away_after_the_window_is_no_excuse(book):
    """The window was over when another lock was granted."""
    book.acquire("a", 1, 5).lose(2).acquire("x", 5, 6, lock="m").acquire("b", 8, 7)
    assert Book.found(with_fault(book, "net_cut", 6, 7, 0)) == ["P1"]
    assert Book.found(with_fault(book, "net_cut", 4, 4.5, 0)) == []


def test_p1_who_renewed_last_counts(book):
    book.acquire("a", 1, 5).renew("a", 1.5, 5, node=1).lose(2).acquire("b", 6, 6)
    assert Book.found(with_fault(book, "net_cut", 3, 4, 0)) == ["P1"]
    assert Book.found(with_fault(book, "net_cut", 3, 4, 1)) == []


def test_p1_a_node_that_may_have_renewed_last_counts(book):
    book.acquire("a", 1, 5).renew("a", 1.5, node=1, status=503).lose(2).acquire("b", 6, 6)
    assert Book.found(with_fault(book, "net_cut", 3, 4, 1)) == []


def test_p1_a_lease_seen_after_the_loss_is_not_excused_by_it(book):
    book.acquire("a", 1, 5).lose(2).renew("a", 5, 5).acquire("b", 6, 6)
    assert Book.found(with_fault(book, "net_cut", 2, 3, 0)) == ["P1"]


def test_p1_the_clock_of_redis_went_forward(book):
    book.acquire("a", 1, 5).acquire("b", 4, 6)
    assert Book.found(with_fault(book, "clock_forward", 2, 3, None)) == []
    assert Book.found(with_fault(book, "clock_back", 2, 3, None)) == ["P1"]


def test_p1_who_came_back_after_an_excused_loss(book):
    """Its node was cut off over the window and confirms the lease at the next loss, before the other's node has put back. (H6)"""
    book.acquire("a", 1, 5, node=0).lose(2).acquire("b", 6, 6, node=1).lose(7).renew("a", 7.5, 5, node=0)
    assert book.found() == ["P1", "P4"]
    assert with_fault(book, "net_cut", 2, 5, 0).found() == []
    assert with_fault(book, "net_cut", 6.5, 6.9, 0).found() == ["P1", "P4"], "only a loss before the other was granted counts"


def test_p1_a_failover_alone_excuses_nothing(book):
    """Two masters at once neither: a node that nothing kept from the sentinels has to follow in time."""
    book.acquire("a", 1, 5).fault("failover_asked", 1.5, 4).fault("two_masters", 1.8, 4).switch(2).acquire("b", 8, 6)
    assert book.found() == ["P1"]
    lives = Book().acquire("a", 1, 5).fault("two_masters", 1.8, 4).acquire("b", 3, 6)
    assert lives.found() == ["P1"]


def test_p1_its_node_was_away_in_the_failover(book):
    book.acquire("a", 1, 5).switch(2).acquire("b", 8, 6)
    assert Book.found(with_fault(book, "net_blind", 2.5, 4, 0)) == []
    assert Book.found(with_fault(book, "net_half", 2.5, 4, 0)) == []
    assert Book.found(with_fault(book, "net_blind", 2.5, 4, 1)) == ["P1"], "another node"
    assert Book.found(with_fault(book, "net_blind", 0.1, 1.5, 0)) == ["P1"], "before"


def test_p1_a_grant_of_the_deposed_master_does_not_close_the_window(book):
    """Right after the sentinels agreed, another node was still answered by the old master."""
    book.acquire("a", 1, 5).switch(2).acquire("x", 3.2, 6, lock="m", node=1).acquire("y", 7, 8, lock="m", node=1, ttl_ms=100).acquire("b", 8, 9)
    book.call("release", "x", 3.5, lock="m", node=1, token=6)
    assert book.found() == ["P1"]
    assert Book.found(with_fault(book, "net_blind", 4, 6, 0)) == []
    assert Book.found(with_fault(book, "net_blind", 7.5, 7.8, 0)) == ["P1"], "the window was over"


def test_p1_whose_node_stayed_with_a_deposed_master(book):
    """Granted there, or granted by the new master while it lived on there."""
    book.acquire("a", 3, 6, node=0).acquire("b", 4, 5, node=1).fault("two_masters", 2, 5)
    assert book.found() == ["P1", "P2"]
    assert Book.found(with_fault(book, "net_blind", 1.5, 4.5, 1)) == []
    assert Book.found(with_fault(book, "net_blind", 1.5, 4.5, 2)) == ["P1", "P2"], "a third node's blindness"
    assert Book.found(with_fault(book, "net_blind", 0.1, 1.5, 1)) == ["P1", "P2"], "it saw again before there were two"
    assert Book.found(with_fault(book, "net_blind", 1.5, 4.5, 0)) == ["P2"], "the greater token is not of the deposed one"
    early = Book().acquire("b", 1, 5, node=1).acquire("a", 4, 6, node=0).fault("two_masters", 2, 5)
    assert Book.found(with_fault(early, "net_blind", 1.5, 4.5, 1)) == ["P1"], "nothing was lost, and it was told while there was one master"
    late = Book().acquire("a", 6, 6, node=0).acquire("b", 7, 5, node=1).fault("two_masters", 2, 5)
    assert Book.found(with_fault(late, "net_blind", 1.5, 4.5, 1)) == ["P1", "P2"], "there was one master again"


def with_fault(book, what, start, stop, node):
    copy = Book()
    copy.records = list(book.records)
    return copy.fault(what, start, stop, node)


# ---------------------------------------------------------------- P2


def test_p2_a_token_that_falls(book):
    assert book.acquire("a", 1, 5).release("a", 2, 5).acquire("b", 3, 4).found() == ["P2"]


def test_p2_nothing_excuses_it(book):
    book.acquire("a", 1, 5).release("a", 2, 5).lose(2).fault("node_kill", 1, 9, None).fault("clock_forward", 2, 3)
    assert book.acquire("b", 3, 4).found() == ["P2"]


def test_p2_calls_that_overlap_may_be_answered_in_any_order(book):
    assert book.acquire("a", 1, 5, ttl_ms=1000, took=0.9).release("a", 1.95, 5).acquire("b", 1.5, 4, took=1).found() == []


def test_p2_the_same_token_twice(book):
    assert "P2" in book.acquire("a", 1, 5, ttl_ms=500, took=2).acquire("b", 2, 5, took=0.5).found()


def test_p2_over_all_locks(book):
    assert book.acquire("a", 1, 5).acquire("b", 2, 4, lock="m").found() == ["P2"]


def test_p2_a_repeated_acquire_has_the_token_of_the_first(book):
    assert book.acquire("a", 1, 5).acquire("x", 2, 6, lock="m").acquire("a", 3, 5).found() == []
    lost = Book().acquire("a", 1, None, status=None).acquire("x", 2, 6, lock="m").acquire("a", 3, 5)
    assert lost.found() == []


# ---------------------------------------------------------------- P4, P5, the register


@pytest.mark.parametrize("verb", ["renew", "release"])
def test_p4_a_stranger(book, verb):
    assert "P4" in book.acquire("a", 1, 5).call(verb, "stranger", 2, token=5).found()


@pytest.mark.parametrize("verb", ["renew", "release"])
def test_p4_after_a_release(book, verb):
    assert book.acquire("a", 1, 5).release("a", 2, 5).call(verb, "a", 3, token=5).found() == ["P4"]


@pytest.mark.parametrize("verb", ["renew", "release"])
def test_p4_after_another_was_granted(book, verb):
    book.acquire("a", 1, 5, ttl_ms=500).acquire("b", 3, 6).release("b", 4, 6)
    assert book.call(verb, "a", 5, token=5).found() == ["P4"]


@pytest.mark.parametrize("verb", ["renew", "release"])
def test_p4_a_break_that_was_lost_with_the_data(book, verb):
    """Not where nothing was lost, or before the break, nor where the other was granted after the loss."""

    def broken(book, lost_at, granted_at):
        book.acquire("a", 1, 5).call("break", None, 2).acquire("b", granted_at, 6).release("b", granted_at + 0.1, 6).call(verb, "a", 5, token=5)
        return (book.lose(lost_at) if lost_at else book).found()

    assert broken(book, 3, 2.1) == []
    assert broken(Book(), None, 2.1) == broken(Book(), 1.5, 2.1) == broken(Book(), 3, 3.5) == ["P4"]


def test_p4_another_token(book):
    assert book.acquire("a", 1, 5).renew("a", 2, 6).found() == ["P4"]


def test_p5_more_than_was_asked_for(book):
    assert book.acquire("a", 1, 5, told_ms=TTL + 1).found() == ["P5"]
    assert Book().acquire("a", 1, 5).renew("a", 2, 5, ttl_ms=500, told_ms=501).found() == ["P5"]
    assert Book().acquire("a", 1, 5, told_ms=0).found() == ["P5"]
    assert Book().acquire("a", 1, 5).acquire("a", 2, 5, ttl_ms=500, told_ms=TTL - 1000).found() == [], "the longer of asked and left"


def test_p5_lost_before_its_time(book):
    assert book.acquire("a", 1, 5).renew("a", 2, status=410).found() == ["P5"]
    assert Book().acquire("a", 1, 5, ttl_ms=1000).renew("a", 2, status=410).found() == []
    assert Book().acquire("a", 1, 5).call("break", None, 1.5).renew("a", 2, status=410).found() == []
    assert Book().acquire("a", 1, 5).release("a", 1.5, status=503).renew("a", 2, status=410).found() == []
    assert with_fault(Book().acquire("a", 1, 5).lose(2).renew("a", 6, status=410), "net_cut", 2, 5, 0).found() == []
    assert Book().acquire("a", 1, 5).lose(2).renew("a", 6, status=410).found() == ["P5"]


def test_the_register_took_a_stale_write(book):
    book.acquire("a", 1, 5).release("a", 2, 5).acquire("b", 3, 6).write("b", 4, 6, 1)
    assert book.write("a", 5, 5, 2, accepted=False).found() == []
    assert book.write("a", 5, 5, 3).found() == ["register"]


def test_a_failover_excuses_no_stale_write(book):
    book.acquire("a", 1, 5).release("a", 2, 5).switch(2).fault("two_masters", 1.5, 9).fault("net_blind", 1.5, 9, None)
    book.acquire("b", 5, 6).write("b", 6, 6, 1).write("a", 7, 5, 2)
    assert book.found() == ["register"]


def test_a_lesser_token_of_a_deposed_master_is_no_newer(book):
    """It was granted later, and wrote first: then the greater token is not stale."""
    book.acquire("a", 3, 6, node=0).release("a", 3.5, 6).acquire("b", 4, 5, node=1).fault("two_masters", 2, 5)
    book.write("b", 5, 5, 1).write("a", 6, 6, 2)
    assert book.found() == ["P2", "register"]
    assert with_fault(book, "net_blind", 1.5, 4.5, 1).found() == []


def test_a_reply_that_cannot_be_read(book):
    book.acquire("a", 1, 5)
    book.records[0]["malformed"] = True
    assert book.found() == ["reply"]


# ---------------------------------------------------------------- P10, P11


def delayed(book, **how):
    return book.acquire("a", 1, 5, ttl_ms=1000, delay_ms=2000, **how)


def test_p10_a_grant_in_the_delay(book):
    assert delayed(book).acquire("b", 3, 6).found() == ["P10"]
    assert delayed(Book()).acquire("b", 4.1, 6).found() == []
    assert delayed(Book()).renew("a", 1.5, 5, ttl_ms=2000).acquire("b", 5, 6).found() == ["P10"]


def test_p10_a_release_frees_it_and_one_that_came_late_does_not(book):
    assert delayed(book).release("a", 1.5, 5).acquire("b", 1.6, 6).found() == []
    assert delayed(Book()).release("a", 1.5, status=503).acquire("b", 1.6, 6).found() == []
    assert delayed(Book()).release("a", 2.5, status=410).acquire("b", 2.6, 6).found() == ["P10"]


def test_p10_it_is_counted_from_a_break(book):
    assert delayed(book).call("break", None, 1.5).acquire("b", 3, 6).found() == ["P10"]
    assert delayed(Book()).call("break", None, 1.5).acquire("b", 3.6, 6).found() == []


def test_p10_a_loss_excuses_it_where_its_node_was_away_or_cannot_have_known_what_was_broken(book):
    assert delayed(book).lose(1.5).acquire("b", 3, 6).found() == ["P10"]
    assert with_fault(delayed(Book()).lose(1.5).acquire("b", 3, 6), "node_kill", 1.6, 1.7, 0).found() == []
    assert delayed(Book()).call("break", None, 1.3, node=1).lose(1.5).acquire("b", 3, 6).found() == ["P10"]
    assert with_fault(delayed(Book()).call("break", None, 1.3, node=1).lose(1.5).acquire("b", 3, 6), "node_kill", 1.6, 1.7, 1).found() == []
    assert delayed(Book()).call("break", None, 1.3, status=503).lose(1.5).acquire("b", 3, 6).found() == ["P10"]
    assert with_fault(delayed(Book()).call("break", None, 1.3, status=503).lose(1.5).acquire("b", 3, 6), "node_kill", 1.6, 1.7, 0).found() == []
    assert delayed(Book(), took=0.4).call("break", None, 1.3, status=503).lose(1.5).acquire("b", 3, 6).found() == []


def test_p11_a_renewal_beyond_the_bound(book):
    assert book.acquire("a", 1, 5, ttl_ms=1000, hold_ms=3000).renew("a", 2, 5, ttl_ms=5000).found() == ["P11"]
    assert Book().acquire("a", 1, 5, ttl_ms=1000, hold_ms=3000).renew("a", 2, 5, ttl_ms=5000, told_ms=2000).found() == []


def test_p11_a_loss_moves_it_by_what_putting_back_takes(book):
    assert book.acquire("a", 1, 5, ttl_ms=1000, hold_ms=3000).lose(1.5).renew("a", 2, 5, ttl_ms=3000).found() == []
    assert Book().acquire("a", 1, 5, ttl_ms=1000, hold_ms=3000).lose(1.5).renew("a", 2, 5, ttl_ms=4000).found() == ["P11"]
    assert Book().acquire("a", 1, 5, ttl_ms=1000, hold_ms=3000).fault("clock_back", 1.5, 1.6).renew("a", 2, 5, ttl_ms=4000).found() == []


def test_p5_a_repeat_may_tell_of_more_where_the_clock_was_set_back(book):
    assert book.acquire("a", 1, 5, ttl_ms=2000).acquire("a", 1.5, 5, ttl_ms=3000, told_ms=3900).found() == ["P5"]
    assert Book().acquire("a", 1, 5, ttl_ms=2000).fault("clock_back", 1.2, 1.3).acquire("a", 1.5, 5, ttl_ms=3000, told_ms=3900).found() == []
    assert Book().acquire("a", 1, 5, ttl_ms=2000).fault("clock_back", 1.2, 1.3).renew("a", 1.5, 5, ttl_ms=3000, told_ms=3900).found() == ["P5"]

"""Judges a history: which promises were broken, for certain?

Everything is read as the broker would like it best: a lease counts as live only from the moment when its holder had read the grant until the
earliest moment at which it can have ended. So a verdict is a proof, however slow the machine was, and a run that finds nothing has proved nothing
but what it tried.

    P1   two leases of one lock live at once. P5 is judged by the same overlap: nobody else is granted before the end that a holder was told.
    P2   of two grants of one lock whose calls did not overlap, the later has the greater token; no token is given to two leases. Also over all
         locks, since they share a fence.
    P4   only the holder's lease id renews or releases: a stranger never, nobody after the lease was released or another was granted.
    P5   a ttl told is not more than was asked for; within the ttl that it was told a holder is not told that the lease is lost.
    P10  after a lease with a delay that nobody tried to release, no other is granted before the delay is over, counted from its earliest end.
    P11  a holder is not told of a time beyond the bound that its lease was asked with, counted from the reading of its grant.
    register   a register that compares tokens never takes a write of a lease after one of a lease that was granted later.

What excuses a P1, a P10 or a lost lease, and nothing else does (docs/guarantees.md):
    - somebody broke the lock;
    - Redis lost its data (a fault with "loss"), and a node that had granted or last renewed the lease died since then, or was stopped, starved or
      cut off from Redis at some time between the loss and the first grant after it, which is when the recovery window was over at the latest;
    - the clock of Redis was set forward while the lease lived;
    - it was told while it was not agreed who is master, or two were, by a node that died, was stopped, starved or cut off in that time: the node may have
      stayed with the deposed one;
    - the lease is one that was excused so against this other one already, and its node, which has to be told so first, confirmed it again.
For a delay, the node that broke the lease counts with those of the lease; a break whose outcome nobody was told
leaves the delay to the node that granted, and nobody where that one had not been told of its grant yet.
P11 may be off by what putting back takes, for each loss, and is not judged where the clock of Redis was set back.
A P4 is excused as a P1 is, and where the lease was broken and the break was lost, with all that was granted in its wake.
P2 is excused for the last but one of these alone: a node that was left with a deposed master hands out lesser tokens there (docs/guarantees.md). The register
is never excused; in it such a grant is no newer than its token says.
"""

import bisect
import collections

SLACK_S = 0.003  # what a millisecond cut off here and there can add up to: Redis' clock, its PTTL, the ttl told
FOREVER = float("inf")

# What keeps a node from Redis (fault -> the node died with its lease table?)
IMPAIRS = {"node_stop": False, "node_kill": True, "node_term": True, "net_cut": False, "net_hole": False, "net_stall": False, "net_slow": False,
           "node_starved": False, "net_blind": False, "net_half": False}
PUT_BACK_S = 1.1  # the store timeout of the nodes, and a little: by so much a loss may move a bound
LEARN_S = 1.5  # after the sentinels' agreement about another master, until every node that is not impaired has surely turned to it
RESTART_S = 5.0  # from the death of a node until it has been started again and has found a master


class Verdict:
    def __init__(self):
        self.violations = []  # (promise, sentence, [records])
        self.excused = collections.Counter()
        self.counts = collections.Counter()

    def violation(self, promise, sentence, *records):
        self.violations.append((promise, sentence, [r for r in records if r is not None]))

    def report(self, most=5):
        lines = [f"{len(self.violations)} violations; excused: {dict(self.excused)}; seen: {dict(self.counts)}"]
        for promise, sentence, records in self.violations[:most]:
            lines.append(f"{promise}: {sentence}")
            lines += [f"    {record}" for record in records]
        if len(self.violations) > most:
            lines.append(f"and {len(self.violations) - most} more")
        return "\n".join(lines)


class Fault:
    """One fault with its begin and end: it was there at no time before `start` and after `stop`."""

    def __init__(self, begin):
        self.what, self.node, self.begin = begin["what"], begin.get("node"), begin
        self.start, self.stop = begin["before"], FOREVER
        self.loss = begin.get("loss", False)

    def meets(self, start, stop):
        return self.start <= stop and self.stop >= start


class Faults:
    def __init__(self, records):
        by_id = {}
        for record in records:
            if record["phase"] == "begin":
                by_id[record["id"]] = Fault(record)
            else:
                by_id[record["id"]].stop = record["after"]
        self.all = sorted(by_id.values(), key=lambda fault: fault.start)
        self.losses = [fault for fault in self.all if fault.loss]
        self.disputes = [fault for fault in self.all if fault.what == "two_masters"]
        self.forward = [fault for fault in self.all if fault.what == "clock_forward"]
        self.back = [fault for fault in self.all if fault.what == "clock_back"]
        self.of_node = collections.defaultdict(list)
        for fault in self.all:
            if fault.what in IMPAIRS:
                self.of_node[fault.node].append(fault)

    def impaired(self, nodes, known, start, stop):
        """Has one of these nodes died in known .. stop, or been kept from Redis in start .. stop? Node None stands for all."""
        for fault in (fault for node in [*nodes, None] for fault in self.of_node[node]):
            if fault.meets(known if IMPAIRS[fault.what] else start, stop):
                return True
        return False


class Piece:
    """A time in which a lease lived for certain: from the reading of a reply that said so."""

    def __init__(self, call, end):
        self.call, self.start, self.end = call, call["got"], end
        self.nodes = {call["node"]}

    @property
    def lease(self):
        return self.call["lease"]


def done_by(call):
    """When its effect had come at the latest. What was not answered, or with a 503, may be carried out at any time."""
    return call["got"] if call["status"] not in (None, 503) else FOREVER


def told(call):
    """Was the client told that it holds the lock?"""
    return call["status"] == 200 and call["verb"] in ("acquire", "renew")


def certain_end(call):
    """The reply was written no earlier than the request was sent and had waited; its ttl counts from there."""
    return call["sent"] + call.get("waited_ms", 0) / 1000 + call["ttl_ms"] / 1000 - SLACK_S


class Lock:
    """All that happened to one lock."""

    def __init__(self, name, calls, writes):
        self.name = name
        self.calls = sorted(calls, key=lambda call: call["got"])
        self.writes = sorted(writes, key=lambda write: write["seq"])
        self.leases = collections.defaultdict(list)
        for call in self.calls:
            if call.get("lease"):
                self.leases[call["lease"]].append(call)
        self.breaks = [call for call in self.calls if call["verb"] == "break"]
        self.grants = [call for call in self.calls if call["verb"] == "acquire" and call["status"] == 200]
        self.pieces = [piece for lease in self.leases for piece in self._pieces(lease)]

    def _pieces(self, lease):
        """What came after a reply can only shorten what it said: a renewal may set less, a release or a break ends it, done or not."""
        calls = self.leases[lease]
        for call in filter(told, calls):
            piece = Piece(call, certain_end(call))
            for other in calls:
                # what was still open when the reply was read, or came later, may have been done after it
                if other is call or done_by(other) <= call["sent"]:
                    continue
                if other["verb"] == "release":
                    piece.end = min(piece.end, max(other["sent"], call["got"]))
                elif other["verb"] == "renew":
                    piece.end = min(piece.end, other["sent"] + other["ask_ttl_ms"] / 1000 - SLACK_S)
                    piece.nodes.add(other["node"])
                elif other["verb"] == "acquire":
                    piece.nodes.add(other["node"])
            for brk in self.breaks:
                if done_by(brk) >= call["sent"]:
                    piece.end = min(piece.end, max(brk["sent"], call["got"]))
            if piece.end > piece.start:
                yield piece

    def grant_of(self, lease, token):
        return next((call for call in self.leases.get(lease, ())
                     if call["verb"] == "acquire" and call["status"] == 200 and call["token"] == token), None)


class Checker:
    def __init__(self, records):
        by_kind = collections.defaultdict(list)
        for record in records:
            by_kind[record["kind"]].append(record)
        self.faults = Faults(by_kind["fault"])
        calls, writes = collections.defaultdict(list), collections.defaultdict(list)
        for call in by_kind["call"]:
            calls[call["lock"]].append(call)
        for write in by_kind["write"]:
            writes[write["lock"]].append(write)
        self.locks = [Lock(name, calls[name], writes[name]) for name in sorted(calls)]
        self._by_name = {lock.name: lock for lock in self.locks}
        grants = [call for lock in self.locks for call in lock.grants]
        self._grants_by_sent = sorted(grants, key=lambda call: call["sent"])
        self._sent = [call["sent"] for call in self._grants_by_sent]
        # the earliest reading of a grant among all that were sent from here on
        self._earliest = [FOREVER]
        for call in reversed(self._grants_by_sent):
            self._earliest.append(min(self._earliest[-1], call["got"]))
        self._earliest.reverse()
        self.verdict = Verdict()
        self.verdict.counts.update(f"{call['verb']} {call['status']}" for call in by_kind["call"])
        for call in by_kind["call"]:
            if call.get("malformed"):
                self.verdict.violation("reply", "a reply that can't be read", call)
        self.verdict.counts["losses"] = len(self.faults.losses)
        self.verdict.counts["switches"] = sum(fault.what == "switch" for fault in self.faults.losses)

    def run(self):
        for lock in self.locks:
            self._exclusion(lock)
            self._delays(lock)
            self._bounds(lock)
            self._fence(lock.grants, f"lock {lock.name}")
            self._same_token(lock)
            self._ownership(lock)
            self._statements(lock)
            self._register(lock)
        self._fence([call for lock in self.locks for call in lock.grants], "all locks")
        return self.verdict

    def closed_by(self, loss):
        """When the window of a loss was over at the latest: nothing is granted in it, so at the first grant that was asked for after the loss. But while a
        switch is under way, the deposed master may still grant."""
        first = loss.stop
        if loss.what == "switch":
            first = max([loss.stop + LEARN_S] + [fault.stop for fault in self.faults.disputes if fault.meets(loss.start, loss.stop)])
        return self._earliest[bisect.bisect_left(self._sent, first)]

    def stayed(self, nodes, start, stop):
        """May one of these nodes, at some time in start .. stop, have been with a master that was deposed?"""
        return any(fault.meets(start, stop) and self.faults.impaired(nodes, fault.start - RESTART_S, fault.start, fault.stop) for fault in self.faults.disputes)

    def deposed(self, call):
        return self.stayed({call["node"]}, self.asked(call), call["got"])

    def excuse(self, piece, until, nodes=frozenset()):
        """Why the lease of this piece may have ended early, before `until`; None if nothing excuses it. `nodes`: others that it depends on."""
        sent = piece.call["sent"]
        if any(fault.meets(sent, until) for fault in self.faults.forward):
            return "clock set forward"
        for loss in self.faults.losses:
            if loss.meets(sent, until) and self.faults.impaired(piece.nodes | nodes, sent, loss.start, min(until, self.closed_by(loss))):
                return "loss, and its node could not put it back"
        if self.stayed(piece.nodes | nodes, sent, until if nodes else piece.call["got"]):
            return "its node may have stayed with a deposed master"
        return None

    def _came_back(self, lock, piece, other):
        """A lease that was rightly given up for lost before the other was granted, and that its node, which did not know, confirmed again: until the
        node has compared its table, only the fence tells the two apart."""
        for before in lock.pieces:
            if before.lease == piece.lease and before.call["got"] < other.call["got"] and self.excuse(before, other.call["got"]):
                return "it came back after " + self.excuse(before, other.call["got"])
        return None

    def _exclusion(self, lock):
        live = []
        for piece in sorted(lock.pieces, key=lambda piece: piece.start):
            live = [other for other in live if other.end > piece.start]
            for other in live:
                if other.lease == piece.lease or min(piece.end, other.end) <= piece.start:
                    continue
                excuse = self.excuse(other, piece.call["got"]) or self._came_back(lock, piece, other)
                if not excuse and self.stayed(piece.nodes, piece.call["sent"], piece.call["got"]):
                    excuse = "the other's node may have stayed with a deposed master"
                if excuse:
                    self.verdict.excused[f"P1: {excuse}"] += 1
                else:
                    overlap = min(piece.end, other.end) - piece.start
                    self.verdict.violation("P1", f"two leases of {lock.name} live at once for {overlap * 1000:.0f} ms", other.call, piece.call)
            live.append(piece)
            if any(piece.call["sent"] < loss.start and loss.stop < piece.end for loss in self.faults.losses):
                self.verdict.counts["leases told before a loss and live after it"] += 1

    def _delays(self, lock):
        """P10. A release that was told 410 released nothing; any other may have."""
        for piece in lock.pieces:
            grant = lock.grant_of(piece.lease, piece.call["token"])
            if not grant or not grant.get("delay_ms") or any(c["verb"] == "release" and c["status"] != 410 for c in lock.leases[piece.lease]):
                continue
            self.verdict.counts["delays"] += 1
            free = piece.end + grant["delay_ms"] / 1000 - SLACK_S
            for other in lock.grants:
                if other["lease"] == piece.lease or other["token"] <= piece.call["token"] or not piece.end <= other["got"] < free:
                    continue
                excuse = self._delay_excuse(lock, piece, other["got"])
                if not excuse and self.deposed(other):
                    excuse = "the other's node may have stayed with a deposed master"
                if excuse:
                    self.verdict.excused[f"P10: {excuse}"] += 1
                else:
                    self.verdict.violation("P10", f"{lock.name} was granted {(free - other['got']) * 1000:.0f} ms before a delay was over", piece.call, other)

    def _delay_excuse(self, lock, piece, until):
        breaks = [brk for brk in lock.breaks if done_by(brk) >= piece.call["sent"] and brk["sent"] <= until]
        for loss in self.faults.losses:
            if any(loss.meets(brk["sent"], until) and brk["status"] in (None, 503) and brk["sent"] < piece.call["got"] for brk in breaks):
                return "loss, and nobody was told of the break before its node was told of the lease"
        return self.excuse(piece, until, {brk["node"] for brk in breaks})

    def _bounds(self, lock):
        """P11."""
        for call in filter(told, lock.calls):
            grant = lock.grant_of(call["lease"], call["token"])
            if not grant or not grant.get("hold_ms") or any(fault.meets(grant["sent"], call["got"]) for fault in self.faults.back):
                continue
            self.verdict.counts["bounds"] += 1
            losses = sum(loss.meets(grant["sent"], call["got"]) for loss in self.faults.losses)
            over = certain_end(call) - (grant["got"] + grant["hold_ms"] / 1000 + losses * PUT_BACK_S)
            if over > 0:
                self.verdict.violation("P11", f"a lease of {lock.name} is to live {over * 1000:.0f} ms beyond its bound", grant, call)

    def _fence(self, grants, where):
        """Against the greatest token that had been read before the grant can have been made."""
        by_got = sorted(grants, key=lambda call: call["got"])
        greatest, i = None, 0
        for call in sorted(grants, key=self.asked):
            while i < len(by_got) and by_got[i]["got"] < self.asked(call):
                if greatest is None or by_got[i]["token"] > greatest["token"]:
                    greatest = by_got[i]
                i += 1
            if greatest and call["token"] <= greatest["token"] and self.deposed(call):
                self.verdict.excused["P2: its node may have stayed with a deposed master"] += 1
            elif greatest and call["token"] <= greatest["token"]:
                self.verdict.violation("P2", f"{where}: token {call['token']} after {greatest['token']}", greatest, call)

    def asked(self, grant):
        """When it can have been made at the earliest: an acquire that is repeated may have been granted to the first try."""
        calls = self._by_name[grant["lock"]].leases[grant["lease"]]
        return min(call["sent"] for call in calls if call is grant or (call["verb"] == "acquire" and call["status"] != 409))

    def _same_token(self, lock):
        owner = {}
        for call in lock.grants:
            first = owner.setdefault(call["token"], call)
            if first["lease"] != call["lease"]:
                self.verdict.violation("P2", f"token {call['token']} was given to two leases of {lock.name}", first, call)

    def _ownership(self, lock):
        """P4: a renewal or release that was told 200 needs a lease that can have been there."""
        for lease, calls in lock.leases.items():
            acquires = [call for call in calls if call["verb"] == "acquire"]
            for call in calls:
                if call["verb"] not in ("renew", "release") or call["status"] != 200:
                    continue
                if not any(acquire["sent"] < call["got"] for acquire in acquires):
                    self.verdict.violation("P4", f"{call['verb']} of a lease of {lock.name} that nobody asked for", call)
                    continue
                last_acquire = max((done_by(acquire) for acquire in acquires if acquire["sent"] < call["got"]), default=0)
                for other in calls:
                    if other["verb"] == "release" and other["status"] == 200 and last_acquire < other["sent"] and other["got"] < call["sent"]:
                        self.verdict.violation("P4", f"{call['verb']} of a lease of {lock.name} that was released", other, call)
                if call["token"] is None or not any(a["status"] is None or a["status"] == 503 or a.get("token") == call["token"] for a in acquires):
                    self.verdict.violation("P4", f"{call['verb']} tells a token of {lock.name} that the lease was not granted", call)
                later = [grant for grant in lock.grants if grant["token"] > call["token"] and grant["lease"] != lease and grant["got"] < call["sent"]]
                if later and any(self.excuse(piece, call["got"]) for piece in lock.pieces if piece.lease == lease and piece.start < call["sent"]):
                    self.verdict.excused["P4: its lease was put back late"] += 1
                elif later and self._break_was_lost(lock, acquires, later, call):
                    self.verdict.excused["P4: its break was lost"] += 1
                elif later:
                    self.verdict.violation("P4", f"{call['verb']} of a lease of {lock.name} after another was granted", later[0], call)

    def _break_was_lost(self, lock, acquires, later, call):
        """Was the lease broken, and the break lost with all that was granted since?"""
        asked = min(acquire["sent"] for acquire in acquires)
        return any(loss.start < call["got"] and all(grant["sent"] < loss.stop for grant in later)
                   and any(brk["sent"] < loss.stop and done_by(brk) >= asked for brk in lock.breaks) for loss in self.faults.losses)

    def _statements(self, lock):
        """P5 in what was told."""
        for lease, calls in lock.leases.items():
            asked, begun = 0, min(call["sent"] for call in calls)
            for call in sorted(calls, key=lambda call: call["sent"]):
                if call["verb"] not in ("acquire", "renew"):
                    continue
                asked = max(asked, call["ask_ttl_ms"])
                most = call["ask_ttl_ms"] if call["verb"] == "renew" else asked
                longer = call["verb"] == "acquire" and any(fault.meets(begun, call["got"]) for fault in self.faults.back)  # a lease that stood has more left
                if call["status"] == 200 and not (0 < call["ttl_ms"] and (call["ttl_ms"] <= most or longer)):
                    self.verdict.violation("P5", f"a ttl of {call['ttl_ms']} ms was told where {most} were asked for", call)
        pieces = collections.defaultdict(list)
        for piece in lock.pieces:
            pieces[piece.lease].append(piece)
        for call in lock.calls:
            if call["verb"] != "renew" or call["status"] != 410:
                continue
            for piece in pieces[call["lease"]]:
                if piece.start < call["sent"] and call["got"] < certain_end(piece.call) and not self._ended(lock, piece, call):
                    excuse = self.excuse(piece, call["got"])
                    if excuse:
                        self.verdict.excused[f"P5: {excuse}"] += 1
                    else:
                        self.verdict.violation("P5", f"a lease of {lock.name} was lost before its time was over", piece.call, call)

    @staticmethod
    def _ended(lock, piece, call):
        """Did anything that was asked for end this lease or give it less time, before the call was answered?"""
        for other in lock.leases[piece.lease]:
            if other is piece.call or other is call or done_by(other) <= piece.call["sent"] or other["sent"] >= call["got"]:
                continue
            if other["verb"] in ("renew", "release"):
                return True
        return any(brk["sent"] < call["got"] and done_by(brk) >= piece.call["sent"] for brk in lock.breaks)

    def _lesser(self, lock, grant):
        """Was it made by a deposed master, under a token that is less than that of an earlier one?"""
        return self.deposed(grant) and any(other["token"] > grant["token"] and other["got"] < self.asked(grant) for other in lock.grants)

    def _register(self, lock):
        """Each accepted write against those before it: was one of them by a lease that was granted wholly after this one?"""
        latest = None  # of the writers so far, the grant that was asked for last
        for write in lock.writes:
            grant = lock.grant_of(write["lease"], write["token"])
            if grant is None or not write["accepted"]:
                continue
            if latest and latest["lease"] != write["lease"] and grant["got"] < self.asked(latest):
                self.verdict.violation("register", f"the register of {lock.name} took a stale write", latest, grant, write)
            if (latest is None or self.asked(grant) > self.asked(latest)) and not self._lesser(lock, grant):
                latest = grant
        self.verdict.counts["writes accepted"] += sum(write["accepted"] for write in lock.writes)
        self.verdict.counts["writes refused"] += sum(not write["accepted"] for write in lock.writes)


def judge(records):
    return Checker(records).run()

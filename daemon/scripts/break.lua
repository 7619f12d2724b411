-- Ends whatever lease holds the lock, by an operator's will, and wakes the next waiter.
--
-- KEYS  as common, 1 to 6      ARGV  4 node
-- Answer  {'broken', fence, token, left, held_ms, owner, woken, delay, id, confirm}  {'free', fence}  {'recovering', fence}  {'foreign', fence}
-- id and confirm: of a lease that this very node vouches for, or is about to: then there is no message to forget it ('' and '0' otherwise)
--
-- Invariants: whoever holds the lock when it runs holds it no longer, nobody is granted it here, and a key that pawl did not write stays. While the window is
-- open a tombstone keeps older copies of the lease from coming back.

-- include common.lua
-- include library.lua
if foreign then
    return {'foreign', fence}
end
if not lease then
    return {window and 'recovering' or 'free', fence}
end
local left, mine = left_of(lease), lease.node == ARGV[4]
bury(lease.token, lease.delay)
forget(lease, ARGV[4], true)
-- In a delay the next waiter can't be granted yet, and it has to know until when.
return {'broken', fence, lease.token, left, math.max(0, now_ms() - lease.granted), lease.owner, window and '' or wake_next(ARGV[4]), lease.delay,
    mine and lease.id or '', mine and lease.confirm or '0'}

-- Ends whatever lease holds the lock, by an operator's will, and wakes the next waiter.
--
-- KEYS  as common, 1 to 6      ARGV  4 node
-- Answer  {'broken', fence, token, left, held_ms, owner, woken, delay}  {'free', fence}  {'recovering', fence}  {'foreign', fence}

-- include common.lua
-- include library.lua
if foreign then
    return {'foreign', fence}
end
if not lease then
    return {window and 'recovering' or 'free', fence}
end
local left = left_of(lease)
bury(lease.token, lease.delay)
forget(lease, ARGV[4])
-- In a delay the next waiter can't be granted yet, and it has to know until when.
return {'broken', fence, lease.token, left, math.max(0, now_ms() - lease.granted), lease.owner, window and '' or wake_next(ARGV[4]), lease.delay}

-- Ends whatever lease holds the lock, by an operator's will, and wakes the next waiter.
--
-- KEYS  as common, 1 to 7      ARGV  4 node  5 life  6 name
-- Answer  {'broken', fence, token, left, held_ms, owner, woken}  {'free', fence}  {'recovering', fence}  {'foreign', fence}
local lease, released
if stored then
    lease, released = parse(stored)
    if not lease and not released then
        return {'foreign', fence}
    end
end
if not lease then
    return {window and 'recovering' or 'free', fence}
end
local left = redis.call('PTTL', KEYS[5])
bury(lease.token)
if lease.node ~= ARGV[4] then
    tell(lease.node, 'forget ' .. lease.id .. ' ' .. ARGV[6])
end
local woken = window and '' or wake_next(ARGV[5], ARGV[6], ARGV[4])
return {'broken', fence, lease.token, left, math.max(0, now_ms() - lease.granted), lease.owner, woken}

-- Ends the holder's lease and wakes the next waiter.
--
-- KEYS  as common, 1 to 6
-- ARGV  4 lease id  5 node  6 the token this node's own table has for the lease (0: not in it)
--       7 to 9, or absent: lease id, ttl and delay in ms, and "node confirm granted_ms owner" of this node's first waiter, with its terms
-- Answer  {'released', fence, token, woken, granted} (fence and token may come as text; granted: the token of that waiter's lease, if it was
--         the head of the queue and so was granted in this run)  {'lost', fence}  {'recovering', fence}  {'foreign', fence}
-- woken is the lease id of the next waiter when it waits at this very node (absent or '' otherwise): the node wakes it without a message.
--
-- Invariant: the waiter is granted as its own acquire would be in the next moment: it is the head, and the lock was freed in this run.

-- include common.lua

-- The plain cases: this node granted it, and nobody waits, or the first who waits is the one that came along, and no other request waits under its lease id.
-- A lease with terms is none: its time may be over, though its key stands.
if stored and not window and string.sub(stored, 1, 36) == ARGV[4] then
    local token, node = string.match(stored, '^(%d+) (%x+) ', 38)
    local first = ARGV[7]
    if node ~= ARGV[5] then
        first = nil
    elseif not first and redis.call('EXISTS', KEYS[6]) == 0 then
        redis.call('DEL', KEYS[5])
        return {'released', fence, token}
    end
    if first and redis.call('ZRANGE', KEYS[6], 0, 0)[1] == first and (#fence < 16 or #fence == 16 and fence < '9007199254740990') then
        local waiters = string.sub(KEYS[2], 1, -6) .. 'waiters:' .. string.sub(KEYS[5], #KEYS[2] + 1)
        local claim = node .. string.match(ARGV[1], '^%S+ %S+ %S+( %d+)') .. string.match(ARGV[9], '^%S+( %d+) ')
        if redis.call('HGET', waiters, first) == claim then
            redis.call('ZREM', KEYS[6], first)
            redis.call('HDEL', waiters, first)
            local granted = redis.call('INCR', KEYS[2])
            redis.call('SET', KEYS[5], first .. string.format(' %.0f ', granted) .. ARGV[9], 'PX', ARGV[8])
            return {'released', granted, token, '', granted}
        end
    end
end

-- include library.lua
local id, own, known = ARGV[4], ARGV[5], tonumber(ARGV[6])

if lease and lease.id == id then
    bury(math.max(lease.token, known), 0)
    forget(lease, own)
    local woken = window and '' or wake_next(own)
    if woken == '' or woken ~= ARGV[7] or redis.call('ZRANGE', KEYS[6], 0, 0)[1] ~= woken or fence >= 9007199254740990 then
        return {'released', fence, lease.token, woken}
    end
    take_turn(woken, own, string.match(ARGV[9], '^%S+ (%d+) '))
    local token = redis.call('INCR', KEYS[2])
    write(woken, token, ARGV[9], ARGV[8])
    return {'released', token, lease.token, '', token}
end
if not window then
    return {'lost', fence}
end
if known == 0 then
    return {'recovering', fence}
end
if there > known or delayed == known or foreign then
    return {'lost', fence}
end
return bury(known, 0) and {'released', fence, known} or {'foreign', fence}

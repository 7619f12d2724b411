-- Ends the holder's lease and wakes the next waiter.
--
-- KEYS  as common, 1 to 7
-- ARGV  4 lease id  5 node  6 life  7 the token this node's own table has for the lease (0: not in it)  8 name
-- Answer  {'released', fence, token, woken}  {'lost', fence}  {'recovering', fence}
-- woken is the lease id of the next waiter when it waits at this very node ('' otherwise): the node wakes it without a message.
local id, node, life, known = ARGV[4], ARGV[5], ARGV[6], tonumber(ARGV[7])
local lease, released
if stored then
    lease, released = parse(stored)
end

if lease and lease.id == id then
    bury(lease.token)
    if lease.node ~= node then
        tell(lease.node, 'forget ' .. id .. ' ' .. ARGV[8])
    end
    return {'released', fence, lease.token, window and '' or wake_next(life, ARGV[8], node)}
end
if not window then
    return {'lost', fence}
end
if known == 0 then
    return {'recovering', fence}
end
local there = lease and lease.token or released or 0
if there > known or (stored and not lease and not released) then
    return {'lost', fence}
end
bury(known)
return {'released', fence, known, ''}

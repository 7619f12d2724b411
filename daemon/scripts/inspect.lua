-- What stands at the lock now; changes nothing.
--
-- KEYS  as common, 1 to 6      ARGV  4 a waiter's lease id ('' none)
-- Answer  {'held' or 'free' or 'foreign', fence, recovering, waiters, position, token, left, held_ms, owner, delay, most}
-- recovering is 1 while the window is open; position is 1 for the first waiter, 0 for none; the next four are 0 and '' unless held. delay and most: as in
-- acquire; when it is free, delay is how long nobody is granted yet.
--
-- Invariant: writes nothing, and what it tells of a lease holds no lease id.

-- include common.lua
-- include library.lua
local waiting, position = redis.call('ZCARD', KEYS[6]), 0
if waiting > 0 and ARGV[4] ~= '' then
    position = (redis.call('ZRANK', KEYS[6], ARGV[4]) or -1) + 1
end
local open = window and 1 or 0
if lease then
    return {'held', fence, open, waiting, position, lease.token, left_of(lease), math.max(0, now_ms() - lease.granted), lease.owner, lease.delay, lease.most or 0}
end
foreign = foreign or not stored and redis.call('EXISTS', KEYS[5]) == 1
return {foreign and 'foreign' or 'free', fence, open, waiting, position, 0, 0, 0, '', (ended or delayed) and redis.call('PTTL', KEYS[5]) or 0, 0}

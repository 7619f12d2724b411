-- What stands at the lock now; changes nothing.
--
-- KEYS  as common, 1 to 7      ARGV  4 a waiter's lease id ('' none)
-- Answer  {'held' or 'free' or 'foreign', fence, recovering, waiters, position, token, left, held_ms, owner}
-- recovering is 1 while the window is open; position is 1 for the first waiter, 0 for none; the last four are 0 and '' unless held.
local waiters = redis.call('ZCARD', KEYS[6])
local position = 0
if waiters > 0 and ARGV[4] ~= '' then
    position = (redis.call('ZRANK', KEYS[6], ARGV[4]) or -1) + 1
end
local open = window and 1 or 0
local lease, released
if stored then
    lease, released = parse(stored)
elseif redis.call('EXISTS', KEYS[5]) == 1 then
    stored = ''
end
if lease then
    return {'held', fence, open, waiters, position, lease.token, redis.call('PTTL', KEYS[5]), math.max(0, now_ms() - lease.granted), lease.owner}
end
return {(stored and not released) and 'foreign' or 'free', fence, open, waiters, position, 0, 0, 0, ''}

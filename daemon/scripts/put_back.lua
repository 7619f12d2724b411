-- Puts a lease back that this node vouches for, after the data were lost; or, once the window is closed, asks whether it is still there.
--
-- KEYS  as common, 1 to 6
-- ARGV  4 lease id  5 token  6 ms left  7 node  8 the confirm number that it stood under  9 "granted_ms owner"  10 another confirm number
-- Answer  {'there', fence}: it stands in Redis, with at least that time left while the window is open  {'lost', fence}: it is over for good
--
-- Invariants: only in the window, and only over nothing or a lesser token (lease or tombstone): the greater token wins whatever the order; the
-- fence is never below a token that stands; each one accepted keeps the window open for three more ticks (a tick right behind it and a stall
-- take one each), up to four times its length. It stands under its own number again, so that an undo of its grant still finds it; unless it is
-- there already under another one: an older copy, or put back by another node, and then more calls than one were told that it holds.

-- include common.lua
-- include library.lua
local id, token, left = ARGV[4], tonumber(ARGV[5]), tonumber(ARGV[6])

if lease and lease.id == id and lease.token == token then
    local longer = math.max(left, redis.call('PTTL', KEYS[5]), 1)
    if window and (lease.node ~= ARGV[7] or lease.confirm ~= ARGV[8]) then
        write(id, token, ARGV[7] .. ' ' .. ARGV[10] .. ' ' .. ARGV[9], text(longer))
    elseif window then
        redis.call('PEXPIRE', KEYS[5], text(longer))
    end
    return {'there', fence}
end
local there = lease and lease.token or released or 0
if not window or there >= token or left < 1 or (stored and not lease and not released) then
    return {'lost', fence}
end
if not write(id, token, ARGV[7] .. ' ' .. ARGV[8] .. ' ' .. ARGV[9], ARGV[6]) then
    return {'lost', fence}
end
raise_fence(token)
local ticks, last, used, interval = string.match(window, '^(%d+) (%d+) (%d+) (%d+)$')
if ticks and tonumber(ticks) < 3 and tonumber(used) < 21 then
    redis.call('SET', KEYS[4], '3 ' .. last .. ' ' .. used .. ' ' .. interval)
end
return {'there', fence}

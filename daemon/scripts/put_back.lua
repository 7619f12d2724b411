-- Puts a lease back that this node vouches for, after the data were lost; or, once the window is closed, asks whether it is still there. So too the delay
-- after a lease that has ended.
--
-- KEYS  as common, 1 to 6
-- ARGV  4 lease id, '-' of one that was broken: only its delay  5 token  6 ms left, of the delay too  7 node  8 the confirm number that it stood under
--       9 "granted_ms owner"  10 another confirm number  11 "delay most": how long it may be held from now on, 0 no bound
-- Answer  {'there', fence}: it stands in Redis, with at least that time left while the window is open  {'lost', fence}: it is over for good
--
-- Invariants: only in the window, and only over nothing or a lesser token (lease or tombstone): the greater token wins whatever the order; the
-- fence is never below a token that stands; each one accepted keeps the window open for three more ticks (a tick right behind it and a stall
-- take one each), up to four times its length. It stands under its own number again, so that an undo of its grant still finds it; unless it is
-- there already under another one: an older copy, or put back by another node, and then more calls than one were told that it holds.

-- include common.lua
-- include library.lua
local id, token, left = ARGV[4], tonumber(ARGV[5]), tonumber(ARGV[6])

-- Three ticks, no less, now that something was put back.
local function keep_window()
    raise_fence(token)
    local ticks, last, used, interval = string.match(window, '^(%d+) (%d+) (%d+) (%d+)$')
    if ticks and tonumber(ticks) < 3 and tonumber(used) < 21 then
        redis.call('SET', KEYS[4], '3 ' .. last .. ' ' .. used .. ' ' .. interval)
    end
end

-- A lease of this token that stands is an older copy, from before the break; a tombstone of it knows of the delay itself.
if id == '-' then
    if not window or left < 1 or foreign or there > token or released == token then
        return {released == token and 'there' or 'lost', fence}
    end
    if delayed == token then
        left = math.max(left, redis.call('PTTL', KEYS[5]))
    end
    if not redis.call('SET', KEYS[5], 'delayed ' .. text(token), 'PX', text(left), stored and 'XX' or 'NX') then
        return {'lost', fence}
    end
    keep_window()
    return {'there', fence}
end

local granted, owner = string.match(ARGV[9], '^(%d+) (.*)$')
local delay, most = string.match(ARGV[11], '^(%d+) (%d+)$')
local mine = {id = id, granted = tonumber(granted), owner = owner, delay = tonumber(delay), most = most ~= '0' and tonumber(most) or nil}
local same = lease or window and ended
if same and same.id == id and same.token == token then
    if not window then
        return {'there', fence}
    end
    local longer = math.max(left, redis.call('PTTL', KEYS[5]), 1)
    mine.most = mine.most and same.most and math.min(mine.most, same.most) or mine.most or same.most
    if same.terms or same.node ~= ARGV[7] or same.confirm ~= ARGV[8] then
        local own_number = same.node == ARGV[7] and same.confirm == ARGV[8]
        prolong(mine, token, ARGV[7], own_number and ARGV[8] or ARGV[10], longer - mine.delay)
    else
        redis.call('PEXPIRE', KEYS[5], text(longer))
    end
    return {'there', fence}
end
if not window or there >= token or left < 1 or foreign then
    return {'lost', fence}
end
if not prolong(mine, token, ARGV[7], ARGV[8], left - mine.delay) then
    return {'lost', fence}
end
keep_window()
return {'there', fence}

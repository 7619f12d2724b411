#!lua name=pawl

-- pawl's guard for Redis: refuses writers whose fencing token is smaller than one that has written before.
--
--     redis-cli -x FUNCTION LOAD REPLACE <pawl.lua
--
-- A fence is a string key that holds the greatest token taken; the caller names it. README.md tells how the two functions are used. Redis
-- 7.0 or later, Valkey.
--
-- Why it is correct under concurrency: Redis runs a function to its end before anything else, so nobody comes between the comparison and
-- the write.

local GREATEST = 9007199254740991 -- 2^53 - 1: up to here the numbers of Lua are exact

-- TEXT -> number, or nil if it isn't a token. Tokens are kept as the text that came, since Lua prints large numbers with an exponent.
local function token_of(text)
    if #text > 16 or not string.find(text, '^[1-9][0-9]*$') then
        return nil
    end
    local token = tonumber(text)
    if token > GREATEST then
        return nil
    end
    return token
end

-- Takes the token or returns an error reply, which has changed nothing.
local function claim(fence, text)
    local token = token_of(text or '')
    if not token then
        return redis.error_reply('PAWL2 not a fencing token: ' .. string.sub(string.gsub(text or 'none', '[^ -~]', '?'), 1, 100))
    end
    local stored = redis.call('GET', fence)
    if stored then
        local taken = token_of(stored)
        if not taken then
            return redis.error_reply('PAWL2 not a fencing token, in the fence itself: ' .. fence)
        end
        if taken > token then
            return redis.error_reply('PAWL1 stale fencing token ' .. text .. ': ' .. fence .. ' has taken ' .. stored)
        end
        if taken == token then
            return nil
        end
    end
    redis.call('SET', fence, text)
    return nil
end

-- FCALL pawl_fence 1 FENCE TOKEN: claims, before the first read. Answers OK.
local function pawl_fence(keys, args)
    if #keys ~= 1 or #args ~= 1 then
        return redis.error_reply('ERR pawl_fence takes one key, the fence, and a token')
    end
    return claim(keys[1], args[1]) or redis.status_reply('OK')
end

-- FCALL pawl_write N FENCE KEY... TOKEN COUNT WORD... [COUNT WORD...]: claims and runs the commands, each preceded by the count of its
-- words. Answers the list of their replies. Nothing runs if the call is malformed or the token is refused. As in MULTI, what ran before a
-- command that failed is not undone.
local function pawl_write(keys, args)
    if #keys < 1 or #args < 3 then
        return redis.error_reply('ERR pawl_write takes the fence and the keys, a token, and for each command the count of its words and the words')
    end
    local commands = {}
    local at = 2
    while at <= #args do
        local count = string.find(args[at], '^[1-9][0-9]?[0-9]?[0-9]?$') and tonumber(args[at])
        if not count or at + count > #args then
            return redis.error_reply('ERR pawl_write: argument ' .. at .. ' is not the count of the words of a command')
        end
        commands[#commands + 1] = {at + 1, at + count}
        at = at + count + 1
    end
    local refused = claim(keys[1], args[1])
    if refused then
        return refused
    end
    local replies = {}
    for i = 1, #commands do
        replies[i] = redis.call(unpack(args, commands[i][1], commands[i][2]))
    end
    return replies
end

redis.register_function('pawl_fence', pawl_fence)
redis.register_function('pawl_write', pawl_write)

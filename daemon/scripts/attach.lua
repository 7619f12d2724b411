-- Joins this server's life of the data, or opens a new one. The only script that does not begin with common.lua: nothing is attached yet.
--
-- KEYS  1 incarnation  2 fence  3 node (this node's own)  4 recovery
-- ARGV  1 the incarnation the node remembers ('' none)  2 the greatest fence it ever saw  3 its new generation  4 a fresh UUID  5 window ms (0: none)
--       6 jump J  7 ms the node key lives  8 '1' = a server that may evict is accepted
-- Answer
--   {'attached', fence, incarnation, identity, opened, ticks left, raised, the server's time in ms}
--   {'not_master', 0, role}  {'loading', 0}  {'no_identity', 0}  {'evicts', 0, policy}  {'bad_fence', 0}  {'others', 0}
--
-- Incarnation: "run_id replid uuid base W". It is adopted when server and data are the ones it names and the fence is not below what the node saw;
-- else the data are of another life (restart, failover, flush, roll-back) and a new one is opened, with a fence above everything that could have been handed out:
-- the Redis clock in microseconds (tokens are slower than it), and J above what is stored and seen in case that clock is behind.
--
-- Invariants: the fence never falls; a life is opened by one node, and the others adopt it; a server that is refused is left as it was.

-- include window.lua
local g, window_ms, jump = tonumber(ARGV[2]), tonumber(ARGV[5]), tonumber(ARGV[6])
local limit = 4503599627370496

local function text(n)
    return string.format('%.0f', n)
end

local replication = redis.call('INFO', 'replication')
local role = string.match(replication, 'role:(%a+)') or '?'
local run_id = string.match(redis.call('INFO', 'server'), 'run_id:(%w+)')
local replid = string.match(replication, 'master_replid:(%w+)')
if role ~= 'master' then
    return {'not_master', 0, role}
end
if string.match(redis.call('INFO', 'persistence'), 'loading:(%d)') == '1' then
    return {'loading', 0}
end
if not run_id or not replid then
    return {'no_identity', 0}
end
local memory = redis.call('INFO', 'memory')
local policy = string.match(memory, 'maxmemory_policy:([%w%-]+)') or '?'
if ARGV[8] ~= '1' and policy ~= 'noeviction' and string.match(memory, 'maxmemory:(%d+)') ~= '0' then
    return {'evicts', 0, policy}
end

local identity = run_id .. ' ' .. replid
local incarnation = redis.call('GET', KEYS[1])
local stored = redis.call('GET', KEYS[2])
if stored and not string.match(stored, '^[1-9]%d*$') then
    return {'bad_fence', 0}
end
local fence = tonumber(stored or '0')
if fence >= limit or g >= limit then
    return {'bad_fence', 0}
end

local now = redis.call('TIME')
local now_us = tonumber(now[1]) * 1000000 + tonumber(now[2])
local now_ms = math.floor(now_us / 1000)
local window = redis.call('GET', KEYS[4])
local opened, left, before = 0, 0, fence

if incarnation and stored and fence >= g and string.sub(incarnation, 1, #identity + 1) == identity .. ' '
    and string.match(incarnation, '^%w+ %w+ [%x%-]+ %d+ %d+$') then
    if g > 0 and incarnation ~= ARGV[1] then
        fence = math.max(fence, g + jump)
    end
    if window then
        left = tick_window(window, now_ms, math.floor(window_ms / 6))
    end
else
    if window_ms == 0 then
        local cursor, head = '0', string.sub(KEYS[2], 1, -6) .. 'node:'
        for _ = 1, 1000 do
            local step = redis.call('SCAN', cursor, 'MATCH', string.gsub(head, '[%*%?%[%]\\]', '\\%0') .. '*', 'COUNT', 1000)
            for _, key in ipairs(step[2]) do
                if key ~= KEYS[3] then
                    return {'others', 0}
                end
            end
            cursor = step[1]
            if cursor == '0' then
                break
            end
        end
    end
    opened = 1
    fence = math.max(now_us, math.max(fence, g) + jump)
    if fence >= limit then
        return {'bad_fence', 0}
    end
    incarnation = identity .. ' ' .. ARGV[4] .. ' ' .. text(fence) .. ' ' .. ARGV[5]
    redis.call('SET', KEYS[1], incarnation)
    if window_ms > 0 then
        left = 6
        redis.call('SET', KEYS[4], '6 ' .. text(now_ms) .. ' 0 ' .. text(math.max(1, math.floor(window_ms / 6))))
    else
        close_window()
    end
end
if fence ~= before then
    redis.call('SET', KEYS[2], text(fence))
end
redis.call('SET', KEYS[3], ARGV[3], 'PX', ARGV[7])
return {'attached', fence, incarnation, identity, opened, left, fence ~= before and 1 or 0, now_ms}

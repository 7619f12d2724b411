-- One step through the held locks: looks at about 1,000 keys.
--
-- KEYS  as common, 1 to 4      ARGV  4 cursor  5 pattern of the lock keys (glob)  6 length of the lock keys' common head  7 key head of queues
-- Answer  {'page', fence, cursor, recovering, then for each lock: name, token, left, held_ms, owner, waiters}
-- cursor is '0' at the end. Redis hands keys out in groups: an answer may hold a few more than asked for, and a lock that was there all
-- along is in it exactly once unless the table was resized meanwhile.
local step = redis.call('SCAN', ARGV[4], 'MATCH', ARGV[5], 'COUNT', 1000)
local page = {'page', fence, step[1], window and 1 or 0}
local now = now_ms()
for _, key in ipairs(step[2]) do
    local value = redis.call('MGET', key)[1]
    local lease = value and parse(value)
    if lease then
        local name = string.sub(key, tonumber(ARGV[6]) + 1)
        page[#page + 1] = name
        page[#page + 1] = lease.token
        page[#page + 1] = redis.call('PTTL', key)
        page[#page + 1] = math.max(0, now - lease.granted)
        page[#page + 1] = lease.owner
        page[#page + 1] = redis.call('ZCARD', ARGV[7] .. name)
    end
end
return page

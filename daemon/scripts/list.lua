-- One step through the held locks.
--
-- KEYS  as common, 1 to 4      ARGV  4 cursor  5 pattern of the lock keys (glob)  6 about how many keys to look at
-- Answer  {'page', fence, cursor, recovering, then for each lock: name, token, left, held_ms, owner, waiters}
-- cursor is '0' at the end. Redis hands keys out in groups: an answer may hold a few more than asked for, and a lock that was there all
-- along is in it exactly once unless the table was resized meanwhile.
--
-- Invariants: writes nothing; no lease id is told; a key of another type, or that pawl did not write, is passed over.

-- include common.lua
-- include library.lua
local step = redis.call('SCAN', ARGV[4], 'MATCH', ARGV[5], 'COUNT', ARGV[6])
local page = {'page', fence, step[1], window and 1 or 0}
local now = now_ms()
for _, key in ipairs(step[2]) do
    local value = redis.call('MGET', key)[1]
    local holder = value and parse(value)
    local left = holder and redis.call('PTTL', key) - holder.delay
    if holder and left >= 0 then
        name = string.sub(key, #KEYS[2] + 1)
        page[#page + 1] = name
        page[#page + 1] = holder.token
        page[#page + 1] = left
        page[#page + 1] = math.max(0, now - holder.granted)
        page[#page + 1] = holder.owner
        page[#page + 1] = redis.call('ZCARD', head .. 'queue:' .. name)
    end
end
return page

-- Ends the recovery window, and with it the tombstones that stood in it (their names are in the set `tombstones`).
local function close_window()
    local top = string.sub(KEYS[2], 1, -6)
    for _, buried in ipairs(redis.call('SMEMBERS', top .. 'tombstones')) do
        local value = redis.call('MGET', top .. 'lock:' .. buried)[1]
        if value and string.sub(value, 1, 9) == 'released ' then
            redis.call('DEL', top .. 'lock:' .. buried)
        end
    end
    redis.call('DEL', top .. 'tombstones', KEYS[4])
end

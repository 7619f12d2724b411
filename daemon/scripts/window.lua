-- Ends the recovery window, and with it the tombstones that stood in it (their names are in the set `tombstones`). What a break left of a delay stands on;
-- a tombstone was written with an hour to live, so what is left of it tells when that was.
local function close_window()
    local top = string.sub(KEYS[2], 1, -6)
    for _, buried in ipairs(redis.call('SMEMBERS', top .. 'tombstones')) do
        local value = redis.call('MGET', top .. 'lock:' .. buried)[1]
        local token, delay = string.match(value or '', '^released (%d+) ?(%d*)$')
        local left = tonumber(delay or '') and tonumber(delay) - 3600000 + redis.call('PTTL', top .. 'lock:' .. buried)
        if left and left > 0 then
            redis.call('SET', top .. 'lock:' .. buried, 'delayed ' .. token, 'PX', string.format('%.0f', left))
        elseif token then
            redis.call('DEL', top .. 'lock:' .. buried)
        end
    end
    redis.call('DEL', top .. 'tombstones', KEYS[4])
end

-- The recovery window: in the scripts that move it.

-- Ends it, and with it the tombstones that stood in it (their names are in the set `tombstones`). What a break left of a delay stands on;
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

-- Takes a tick off the window (the value of its key), if its interval is over by Redis's time, or that went back; the last one closes it. `least`: what the
-- interval is from now on, at the least, in ms. Returns the ticks that are left. Any other value counts as a window whose time is up.
local function tick_window(window, now, least)
    local n, last, used, interval = string.match(window, '^(%d+) (%d+) (%d+) (%d+)$')
    local left = tonumber(n) or 0
    last, used, interval = tonumber(last) or 0, tonumber(used) or 0, tonumber(interval) or 0
    if now - last >= interval or now < last then
        left, last, used = left - 1, now, used + 1
    end
    if left <= 0 then
        close_window()
        return 0
    end
    redis.call('SET', KEYS[4], string.format('%.0f %.0f %.0f %.0f', left, last, used, math.max(interval, least)))
    return left
end

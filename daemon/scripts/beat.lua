-- The node's sign of life: its key lives on, the recovery window moves, a changed server is noticed.
--
-- KEYS  as common, 1 to 4      ARGV  4 run_id and replid of the server  5 ms the node key lives  6 node
-- Answer  {'beat', fence, ticks left in the window, the server's time in ms}  {'differs', fence}: another life, or no master any more
--
-- The window counts ticks, not time: one tick each interval of Redis time at most, also when its clock went back, so neither a stall nor a
-- jump of the clock lapses it while nodes could not run.
--
-- Invariants: touches no lease; where the server is not the one that was attached to, nothing is written.

-- include common.lua
-- include library.lua
-- include window.lua
local server, replication = redis.call('INFO', 'server'), redis.call('INFO', 'replication')
local identity = (string.match(server, 'run_id:(%w+)') or '') .. ' ' .. (string.match(replication, 'master_replid:(%w+)') or '')
if identity ~= ARGV[4] or string.match(replication, 'role:(%a+)') ~= 'master' then
    return {'differs', fence}
end
redis.call('PEXPIRE', KEYS[3], ARGV[5])
redis.pcall('PUBLISH', KEYS[3], 'beat')
local now = now_ms()
return {'beat', fence, window and tick_window(window, now, 0) or 0, now}

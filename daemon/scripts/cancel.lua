-- Gives up a waiter's place and undoes a grant that nobody learned of.
--
-- KEYS  as common, 1 to 6
-- ARGV  4 lease id  5 node  6 confirm number of the grant to undo ('0' none)  7 '1' = leave the queue, '2' = and the client may come back: its
--       ticket is remembered for a while
-- Answer  {'cancelled', fence, undone, woken, waiters, token, left, held_ms, owner, own}: undone 1 if a grant was taken back; the next four
--         describe who holds the lock afterwards (0 and '' when nobody does); own 1 if that is this very lease id, by another call
--
-- Invariants: deletes a lease only if lease id, node and confirm number are those of the call being undone, so it can't kill a lease that a
-- retry was told it holds; takes away a place only if it is this node's.

-- include common.lua
-- include library.lua
local id, own = ARGV[4], ARGV[5]
local undone, was_first = 0, false
if lease and lease.id == id and lease.node == own and lease.confirm == ARGV[6] then
    bury(lease.token)
    undone, lease, stored = 1, nil, false
end
if ARGV[7] ~= '0' and string.match(redis.call('HGET', waiters, id) or '', '^(%x+) ') == own then
    was_first = redis.call('ZRANK', KEYS[6], id) == 0
    if ARGV[7] == '2' then
        redis.call('SET', left_key(id), text(tonumber(redis.call('ZSCORE', KEYS[6], id))), 'PX', COME_BACK_MS)
    end
    leave_queue(id)
end
local woken = ''
if not window and (undone == 1 or (was_first and (not stored or released))) then
    woken = wake_next(own)
end
local answer = {'cancelled', fence, undone, woken, redis.call('ZCARD', KEYS[6]), 0, 0, 0, '', lease and lease.id == id and 1 or 0}
if lease then
    answer[6], answer[7], answer[8], answer[9] = lease.token, redis.call('PTTL', KEYS[5]), math.max(0, now_ms() - lease.granted), lease.owner
end
return answer

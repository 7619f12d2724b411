-- Gives up a waiter's place and undoes a grant that nobody learned of.
--
-- KEYS  as common, 1 to 6
-- ARGV  4 lease id  5 node  6 confirm number of the request: the grant to undo, the claim to give up ('0': no grant, and every claim of
--       this node)  7 '1' = give up the claim to a place, '2' = and the client may come back: the ticket of the place is remembered for a while
-- Answer  {'cancelled', fence, undone, woken, waiters, token, left, held_ms, owner, own}: undone 1 if a grant was taken back; the next four
--         describe who holds the lock afterwards (0 and '' when nobody does); own 1 if that is this very lease id, by another call
--
-- Invariants: deletes a lease only if lease id, node and confirm number are those of the call being undone, so it can't kill a lease that a
-- retry was told it holds; takes away a place only with the last claim to it. While leases are put back, what stands may be an older copy of what
-- another node vouches for: the tombstone keeps lesser tokens out, not this one.

-- include common.lua
-- include library.lua
local id, own = ARGV[4], ARGV[5]
local undone, was_first = 0, false
if lease and lease.id == id and lease.node == own and lease.confirm == ARGV[6] and ARGV[6] ~= '0' then
    bury(lease.token - 1)
    undone, lease, stored = 1, nil, false
end
if ARGV[7] ~= '0' then
    local claims, others = claims_of(id), {}
    for _, claim in ipairs(claims) do
        if claim.node ~= own or (claim.number ~= ARGV[6] and ARGV[6] ~= '0') then
            others[#others + 1] = claim
        end
    end
    if #others < #claims then
        was_first = redis.call('ZRANK', KEYS[6], id) == 0
        local ticket = redis.call('ZSCORE', KEYS[6], id)
        if ticket and #others == 0 and ARGV[7] == '2' then
            redis.call('SET', left_key(id), text(tonumber(ticket)), 'PX', COME_BACK_MS)
        end
        keep_claims(id, others)
    end
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

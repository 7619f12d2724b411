-- What the scripts share once a case is not the plain one.
--
-- Invariants
--   A lock is one string: "lease_id token node confirm granted_ms owner", with a PX, written by one SET: it is never without an end.
--   A lease that was taken with terms has them behind its node: "+delay" or "+delay.spare". Its key lives for the delay longer than the lease, which is over
--   once less than that is left; the key then stands for nobody, and in the way of everybody. The spare is by how much the end may still be put off: what
--   may be held in all is what is left and the spare, and every renewal leaves that as it is. Both are judged by what is left of the key, not by a clock.
--   "delayed token" is what a break leaves of a lease with a delay; it ends with the delay.
--   The confirm number is unique to the run that wrote it, within its node: numbered anew by each call that is told "you hold it".
--   A tombstone "released token" stands for a lease that was given up while the recovery window was open; it is no holder. Behind the token may stand the
--   delay of a lease that was broken: the tombstone becomes a "delayed" when the window ends.
--   queue is a sorted set lease_id -> ticket (from the fence), waiters a hash lease_id -> claims; both hold the same lease ids.
--   A claim "node life confirm" is one request that waits for the place. Several may (a client that came back while its old connection
--   lasts): the newest stands first, joined by ','. A place is given up with its last claim.
--   left:LEASE_ID is the ticket of a waiter whose client went away and may come back with the same lease id; it ends by itself.
--   queue and waiters are kept up by the looks of their waiters' nodes, and end by themselves when every such node is gone.
--   The life of a claim is the base of the incarnation: 4th word of it.
--   Numbers become text by %.0f only: Lua's own way loses digits from 1e14 on.
fence = tonumber(fence)
local name = string.sub(KEYS[5] or '', #KEYS[2] + 1) -- "...fence" is as long as "...lock:"
local head = string.sub(KEYS[2], 1, -6)
local waiters = head .. 'waiters:' .. name
local life = string.match(ARGV[1], '^%S+ %S+ %S+ (%d+)')

local QUEUE_MS, COME_BACK_MS = 15000, 10000

local function text(n)
    return string.format('%.0f', n)
end

local function now_ms()
    local t = redis.call('TIME')
    return tonumber(t[1]) * 1000 + math.floor(tonumber(t[2]) / 1000)
end

-- The fields of a lock's value; nil for what is no lease: then the second result is the token of a tombstone, the third that of a lease that was broken, and
-- without any of them pawl did not write it.
local function parse(value)
    local id, token, node, terms, confirm, granted, owner = string.match(value, '^(%x+%-[%x%-]+) (%d+) (%x+)(%S*) (%d+) (%d+) (.*)$')
    if id and #value <= 512 then -- the longest that pawl writes has less than 430 bytes
        local delay, spare = string.match(terms, '^%+(%d+)%.?(%d*)$')
        return {id = id, token = tonumber(token), node = node, confirm = confirm, granted = tonumber(granted), owner = owner,
            terms = terms ~= '', delay = tonumber(delay or '0'), spare = tonumber(spare or '')}
    end
    return nil, tonumber(string.match(value, '^released (%d+)') or ''), tonumber(string.match(value, '^delayed (%d+)$') or '')
end

-- `tail` is "node confirm granted_ms owner", and `ttl` what the key lives: the delay is part of it. False where a key of another type stands, which is never touched.
local function write(id, token, tail, ttl)
    return redis.call('SET', KEYS[5], id .. ' ' .. text(token) .. ' ' .. tail, 'PX', ttl, stored and 'XX' or 'NX')
end

local function left_of(holder)
    return redis.call('PTTL', KEYS[5]) - holder.delay
end

-- The lease anew, for ttl more ms, but not for longer than it may be held (its `most`: from now on; nil: no bound). Returns the ttl that it got, or nil
-- where a key of another type stands.
local function prolong(holder, token, own, confirm, ttl)
    local terms = ''
    if holder.most then
        ttl = math.min(ttl, holder.most)
        terms = '+' .. text(holder.delay) .. '.' .. text(holder.most - ttl)
    elseif holder.delay > 0 then
        terms = '+' .. text(holder.delay)
    end
    if ttl + holder.delay < 1 then
        return ttl -- the last millisecond of its bound: it stays as it is
    end
    return write(holder.id, token, own .. terms .. ' ' .. confirm .. ' ' .. text(holder.granted) .. ' ' .. holder.owner, text(ttl + holder.delay)) and ttl
end

-- A token that is handed out, or stands, is never above the fence.
local function raise_fence(token)
    if token > fence then
        redis.call('SET', KEYS[2], text(token))
        fence = token
    end
end

local function node_key(node)
    return head .. 'node:' .. node
end

-- PUBLISH must not fail the script: what was written before it stands.
local function tell(node, message)
    local heard = redis.pcall('PUBLISH', node_key(node), message)
    return type(heard) == 'number' and heard > 0
end

-- Another node granted or last renewed this lease: it is not that one's matter any more, as far as the number goes that it stood under. By it the
-- node knows a message that is older than a renewal of its own.
-- A break says so: the delay is that node's matter too, since the answer to the one that broke it may be lost together with the data.
local function forget(lease, own, broken)
    if lease.node ~= own then
        tell(lease.node, (broken and 'broken ' or 'forget ') .. lease.id .. ' ' .. lease.confirm .. ' ' .. name)
    end
end

local function leave_queue(id)
    redis.call('ZREM', KEYS[6], id)
    redis.call('HDEL', waiters, id)
end

local function claims_of(id)
    local claims = {}
    for claimant, born, number in string.gmatch(redis.call('HGET', waiters, id) or '', '(%x+) (%d+) (%d+)') do
        claims[#claims + 1] = {node = claimant, life = born, number = number}
    end
    return claims
end

-- The place stays with these claims, at most 4 of them; without any it is given up.
local function keep_claims(id, claims)
    local words = {}
    for i = 1, math.min(#claims, 4) do
        words[i] = claims[i].node .. ' ' .. claims[i].life .. ' ' .. claims[i].number
    end
    if #words == 0 then
        leave_queue(id)
    else
        redis.call('HSET', waiters, id, table.concat(words, ','))
    end
end

-- The node of the first claim that somebody still makes; `alive` remembers what was found of nodes.
local function claimant_of(id, alive)
    for _, claim in ipairs(claims_of(id)) do
        if alive[claim.node] == nil then
            alive[claim.node] = redis.call('EXISTS', node_key(claim.node)) == 1
        end
        if claim.life == life and alive[claim.node] then
            return claim.node
        end
    end
    return nil
end

-- This request's turn has come: its claim goes. Other requests under this lease id are told to look, and keep the place until they have: should this
-- one's grant be undone, it is theirs.
local function take_turn(id, own, confirm)
    local others = {}
    for _, claim in ipairs(claims_of(id)) do
        if claim.node ~= own or claim.number ~= confirm then
            others[#others + 1] = claim
        end
        if claim.node ~= own then
            tell(claim.node, 'wake ' .. id .. ' ' .. name)
        end
    end
    keep_claims(id, others)
end

local function left_key(id)
    return head .. 'left:' .. id
end

-- The waiter whose turn it is, and its node. Drops heads of dead nodes and of other lives on the way, at most 64 in one run ('more').
local function first_waiter()
    local alive = {}
    for _ = 1, 64 do
        local id = redis.call('ZRANGE', KEYS[6], 0, 0)[1]
        if not id then
            return nil
        end
        local node = claimant_of(id, alive)
        if node then
            return id, node
        end
        leave_queue(id)
    end
    return 'more'
end

-- Drops waiters of dead nodes and other lives among 256 places from this one on.
local function sweep(from)
    local ids = redis.call('ZRANGE', KEYS[6], from - 1, from + 254)
    local alive = {}
    for _, id in ipairs(ids) do
        if not claimant_of(id, alive) then
            leave_queue(id)
        end
    end
end

-- Pokes the first waiter. When its node does not listen (dead, or reconnecting), pokes the next ones too, so that somebody looks again
-- soon. Returns the lease id when it is the caller's own node that must wake it: no message is needed then.
local function wake_next(own)
    local id, node = first_waiter()
    if id == 'more' then
        id, node = first_waiter()
    end
    if not node then
        return ''
    end
    if node == own then
        return id
    end
    if not tell(node, 'wake ' .. id .. ' ' .. name) then
        for _, other in ipairs(redis.call('ZRANGE', KEYS[6], 1, 4)) do
            local host = string.match(redis.call('HGET', waiters, other) or '', '^(%x+) ')
            if host == own then
                return other
            end
            if host and tell(host, 'wake ' .. other .. ' ' .. name) then
                break
            end
        end
    end
    return ''
end

-- Ends a lease: gone, or a tombstone while leases are being put back, lest an older copy of it come back. It goes with the window, and in
-- any case with its own end, as every key of a lock does. With a delay (0: none) nobody is granted the lock for that long. False where a key of another
-- type stands.
local function bury(token, delay)
    if not window and delay > 0 then
        redis.call('SET', KEYS[5], 'delayed ' .. text(token), 'PX', text(delay))
        return true
    end
    if not window then
        redis.call('DEL', KEYS[5])
        stored = false
        return true
    end
    local tombstone = 'released ' .. text(token) .. (delay > 0 and ' ' .. text(delay) or '')
    if not redis.call('SET', KEYS[5], tombstone, 'PX', 3600000, stored and 'XX' or 'NX') then
        return false
    end
    redis.call('SADD', head .. 'tombstones', name)
    return true
end

-- What stands at the lock: a lease that holds it; one whose time is over and whose delay is not; the token of a tombstone; the token of a lease that was
-- broken, in its delay. `there` is the greatest token of which nobody can vouch for a later word: for the second it is one less, since in a window a renewal
-- of that very lease may be what was lost.
local lease, released, delayed, ended
if stored and KEYS[5] then
    lease, released, delayed = parse(stored)
    if lease and lease.terms then
        local left = left_of(lease)
        lease.most = lease.spare and left + lease.spare
        if left < 0 then
            lease, ended = nil, lease
        end
    end
end
local there = lease and lease.token or ended and ended.token - 1 or released or delayed or 0
local foreign = stored and not lease and not ended and not released and not delayed

-- Applies the message of one member about the rates of one resource, and gives the advances that fit.
--
-- The account of the rates is that of `tidegate_share::rates::RateDivision`, with the same names. A test
-- compares both. Each change of what is charged has a number, as a division of slots has.
--
-- KEYS   the state of the resource; when each member was last heard
-- ARGV   the member; one of the following kinds; the number of the last change of charges that the member knows of in
--        its epoch; and the fields of the kind:
--        `join`       with the members that it replaces, separated by commas; the epoch that the member
--                     knows; the milliseconds for which the store of this epoch may not know its charges; the
--                     number of corrections that are its past charges; and the fields of a draw. The other
--                     corrections are changes of charges that the store of this epoch knows
--        `draw`       with the milliseconds of silence, and the fields of a draw: its number; the weight; the number
--                     of limits; four numbers for each limit; the wanted amounts; the least amounts (both 0 if
--                     nothing is wanted); and the corrections, each with an age in milliseconds and its amounts
--        `heartbeat`  with the milliseconds of silence: since the last answer to this member
--        `alive`      with the milliseconds of silence, if the member wants nothing. Takes little time, however many
--                     members there are
--        `leave`      with the milliseconds of silence
-- Reply  the name of the member and the text of `reply`, or only the number of members if it is `alive`;
--        nothing if it leaves, or false if it is not known
--
-- `wall` (the time in seconds) and the constants in capitals are set above this script.

local state_key, heard_key = KEYS[1], KEYS[2]
local id, kind = ARGV[1], ARGV[2]

local known = redis.call('HMGET', state_key, 'clock', 'wall', 'epoch', 'division', 'kept')
local is_new = not known[1]
local knows = not is_new and (kind ~= 'join' or ARGV[5] == known[3])
-- The store has lost its last changes: it was an older replica, or its file was not up to date.
local has_lost_changes = knows and tonumber(ARGV[3]) > tonumber(known[4])
if kind ~= 'join' and (is_new or has_lost_changes) then
  return false
end

-- The clock of the resource never goes back, and does not jump when the clock of the server does: the time since the
-- last message is at most that since the last answer to this member. Whoever joins does not know that time. If nobody
-- was heard for long then, it is not known whether the clock of the server has jumped.
-- It begins late, so that what was charged before has a time.
local step = math.max(wall - tonumber(known[2] or wall), 0)
if kind ~= 'join' then
  step = math.min(step, math.max(MAX_STEP, tonumber(ARGV[4]) / 1000))
elseif step <= LEASE_TIME then
  step = math.min(step, MAX_STEP)
end
local clock = tonumber(known[1] or MAX_WINDOW_MS / 1000) + step
local exact_clock, exact_wall = string.format('%.17g', clock), string.format('%.17g', wall)
local heard = string.format('%.6f', clock)

if kind == 'alive' then
  if not redis.call('ZSCORE', heard_key, id) then
    return false
  end
  redis.call('ZADD', heard_key, heard, id)
  redis.call('HSET', state_key, 'clock', exact_clock, 'wall', exact_wall)
  redis.call('PEXPIRE', state_key, known[5])
  redis.call('PEXPIRE', heard_key, known[5])
  return id .. ' ' .. redis.call('ZCARD', heard_key)
end

local packed = redis.call('HGET', state_key, 'state')
-- No earlier store had this epoch.
local new_epoch = string.format('%.6f', wall)
local state = packed and cmsgpack.unpack(packed) or { epoch = new_epoch, joined = 0, virtual_time = 0, division = 0,
  is_unused = true, bounds = {}, accounts = {} }
if kind ~= 'join' and not state.accounts[id] then
  return false
end
if has_lost_changes then
  -- All members join again, and tell all that they have charged.
  knows, state.epoch, state.accounts = false, new_epoch, {}
  redis.call('DEL', heard_key)
end
if kind ~= 'leave' then
  redis.call('ZADD', heard_key, heard, id)
end

local bounds, accounts = state.bounds, state.accounts

-- Returns the time for which an advance may be used, in seconds.
local function stock_time(window_ms)
  return math.max(math.min(math.floor(window_ms / 80), LONGEST_STOCK_MS), 50) / 1000
end

-- The burst is a time, in which at least 1 accrues.
local function depth(limit)
  return math.max(limit.per_second * limit.burst_ms / 1000, 1)
end

-- Returns what is available in a store that may have lost charges. The burst of a limit per day is the whole day.
local function first_level(limit)
  return (limit.window_ms < LONG_WINDOW_MS and FIRST_BURST or 1) * depth(limit)
end

local function level(bound)
  local passed = math.max(clock - bound.at, 0)
  return math.min(bound.level + passed * bound.limit.per_second, depth(bound.limit))
end

if has_lost_changes then
  for _, bound in ipairs(bounds) do
    bound.level, bound.at = math.min(level(bound), first_level(bound.limit)), clock
  end
end

local function take(bound, amount)
  bound.level = math.min(level(bound) - amount, depth(bound.limit))
  bound.at = math.max(bound.at, clock)
end

-- Moves the newest bin forward to the clock, and drops the charges of bins that have expired.
local function advance(bound)
  local to = math.floor(clock / bound.bin)
  if to >= bound.head + bound.total then
    bound.bins, bound.sum = {}, 0
  else
    for bin = bound.head + 1, to do
      local slot = tostring(bin % bound.total)
      bound.sum = bound.sum - (bound.bins[slot] or 0)
      bound.bins[slot] = nil
    end
  end
  bound.head = math.max(bound.head, to)
end

-- Adds `amount` to what was charged `age` seconds ago.
local function charge(bound, age, amount)
  advance(bound)
  local bin = math.min(math.floor(math.max(clock - age, 0) / bound.bin), bound.head)
  local has_expired = bin + bound.total <= bound.head
  if has_expired and amount <= 0 then return end
  local slot = tostring((has_expired and bound.head or bin) % bound.total)
  bound.bins[slot] = (bound.bins[slot] or 0) + amount
  bound.sum = bound.sum + amount
  state.division = state.division + 1
end

-- Returns in how many seconds `amount` fits if nothing else is charged.
local function wait_for(bound, amount)
  if amount <= 0 then return 0 end
  local missing = math.min(amount, depth(bound.limit)) - level(bound)
  local wait = math.max(missing / bound.limit.per_second, 0)
  advance(bound)
  local most = math.max(bound.limit.per_window - amount, 0)
  local left, bin = bound.sum, math.max(bound.head + 1 - bound.total, 0)
  while left > most and bin <= bound.head do
    left = left - (bound.bins[tostring(bin % bound.total)] or 0)
    bin = bin + 1
  end
  if left ~= bound.sum or left > most then
    wait = math.max(wait, (bin - 1 + bound.total) * bound.bin - clock + 1e-6)
  end
  return wait
end

local function remove(member)
  accounts[member] = nil
  redis.call('ZREM', heard_key, member)
end

for _, member in ipairs(redis.call('ZRANGEBYSCORE', heard_key, '-inf', string.format('%.6f', clock - LEASE_TIME))) do
  remove(member)
end

local function number(text, least, most)
  local value = tonumber(text) or least
  -- NaN is not equal to itself.
  if value ~= value then value = least end
  return math.max(math.min(value, most), least)
end

-- Reads the fields of a draw from `ARGV[at]` on.
local function read(at, is_join)
  local function next_field()
    at = at + 1
    return ARGV[at - 1]
  end
  local draw = tonumber(next_field())
  -- The client of a cluster sends a message again if its connection ends before the answer.
  if accounts[id] and (is_join or accounts[id].draw == draw) then return end
  local weight, count = number(next_field(), MIN_WEIGHT, MAX_WEIGHT), tonumber(next_field())
  local limits, want, least, wants = {}, {}, {}, false
  for nth = 1, count do
    local window_ms = number(next_field(), MIN_WINDOW_MS, MAX_WINDOW_MS)
    local per_window = number(next_field(), 1, MAX_AMOUNT)
    local per_second = number(next_field(), 1e-6, MAX_AMOUNT)
    local burst_ms = number(next_field(), 0, MAX_WINDOW_MS)
    limits[nth] = { window_ms = window_ms, per_window = per_window, per_second = per_second, burst_ms = burst_ms }
  end
  for nth = 1, count do want[nth] = number(next_field(), 0, MAX_AMOUNT) wants = wants or want[nth] > 0 end
  for nth = 1, count do least[nth] = number(next_field(), 0, MAX_AMOUNT) end
  if #bounds == 0 then
    for nth = 1, count do
      local bin = limits[nth].window_ms / 1000 / BINS
      local stock = stock_time(limits[nth].window_ms)
      bounds[nth] = { limit = limits[nth], level = first_level(limits[nth]), at = clock, bin = bin,
        total = BINS + 1 + math.ceil(stock / bin) + TRAVEL_BINS, head = math.floor(clock / bin), bins = {}, sum = 0 }
    end
  end
  if #bounds ~= count then return end
  local account = accounts[id]
  if not account then
    state.joined = state.joined + 1
    account = { number = state.joined, served = state.virtual_time, advanced = 0, given = {},
      charged = {}, given_at = clock }
    accounts[id] = account
  end
  account.draw, account.weight, account.limits, account.drawn_at = draw, weight, limits, clock
  account.want, account.least, account.waits = want, least, wants
  -- What the store does not know is told as past charges, and changes of what it knows as pending corrections.
  local unknown_for, past = 0, 0
  if is_join then
    unknown_for, past = knows and tonumber(ARGV[6]) / 1000 or math.huge, tonumber(ARGV[7])
  end
  local nth_correction = 0
  while ARGV[at] do
    nth_correction = nth_correction + 1
    local is_past = nth_correction <= past
    local age = number(next_field(), 0, MAX_WINDOW_MS) / 1000
    for nth = 1, count do
      local amount = number(next_field(), -MAX_AMOUNT, MAX_AMOUNT)
      local bound = bounds[nth]
      if is_past == (age < unknown_for) then
        amount = math.max(math.min(amount, bound.limit.per_window), -bound.sum)
        -- What a new member has charged before has been accruing again since then.
        if amount < 0 or not is_past or age < bound.limit.burst_ms / 1000 then take(bound, amount) end
        charge(bound, age, amount)
      end
    end
  end
  if wants and state.is_unused then
    state.is_unused = nil
    -- A part of the burst may be less than one call. The first one need not wait if nobody has told of earlier ones.
    for nth, bound in ipairs(bounds) do
      if bound.sum == 0 then
        bound.level, bound.at = math.max(level(bound), math.min(least[nth], depth(bound.limit))), clock
      end
    end
  end
end

if kind == 'join' then
  for member in string.gmatch(ARGV[4], '[^,]+') do
    remove(member)
  end
  read(8, true)
elseif kind == 'draw' then
  read(5, false)
elseif kind == 'leave' then
  remove(id)
end

-- Applies the smallest limits of the members that wait or have drawn within LEASE_TIME. Others may know outdated
-- limits. Sums of times are rounded.
local function apply_limits()
  local smallest = {}
  for _, account in pairs(accounts) do
    local is_used = account.waits or clock < account.drawn_at + LEASE_TIME - 1e-6
    for nth, limit in ipairs(is_used and account.limits or {}) do
      local known = smallest[nth] or limit
      smallest[nth] = { window_ms = known.window_ms, per_window = math.min(known.per_window, limit.per_window),
        per_second = math.min(known.per_second, limit.per_second), burst_ms = math.min(known.burst_ms, limit.burst_ms) }
    end
  end
  for nth, limit in ipairs(smallest) do
    local bound = bounds[nth]
    local known = bound.limit
    if known.per_window ~= limit.per_window or known.per_second ~= limit.per_second or known.burst_ms ~= limit.burst_ms then
      local now = level(bound)
      bound.limit = limit
      bound.level, bound.at = math.min(math.max(now, -limit.per_window), depth(limit)), clock
    end
  end
end

apply_limits()
local members = 0
for _ in pairs(accounts) do members = members + 1 end
if redis.call('ZCARD', heard_key) < members then
  -- The server has evicted the key.
  for member in pairs(accounts) do
    redis.call('ZADD', heard_key, 'NX', heard, member)
  end
end

-- Returns the members that wait, in the order in which they are served.
local function in_order()
  local waiting, weights = {}, 0
  for member, account in pairs(accounts) do
    if account.waits then
      waiting[#waiting + 1] = { member = member, account = account, start = math.max(account.served, state.virtual_time) }
    end
  end
  table.sort(waiting, function(a, b)
    return a.start < b.start or (a.start == b.start and a.account.number < b.account.number)
  end)
  -- In this order, because the sum of floating-point numbers depends on it.
  local by_number = {}
  for _, entry in ipairs(waiting) do by_number[#by_number + 1] = entry.account end
  table.sort(by_number, function(a, b) return a.number < b.number end)
  for _, account in ipairs(by_number) do weights = weights + account.weight end
  return waiting, weights
end

-- Returns the advance of a member: its next call, and as many like it as it wants and is entitled to.
local function advance_of(account, weights)
  local shortest, calls, amounts = math.huge, math.huge, {}
  for _, bound in ipairs(bounds) do shortest = math.min(shortest, bound.limit.window_ms) end
  local time = stock_time(shortest) * account.weight / weights
  for nth, bound in ipairs(bounds) do
    if account.least[nth] > 0 then
      local entitled = time * bound.limit.per_second
      if bound.limit.window_ms >= LONG_WINDOW_MS then
        -- Its charges are not smoothed.
        advance(bound)
        entitled = math.min(level(bound), bound.limit.per_window - bound.sum)
      end
      calls = math.min(calls, math.min(account.want[nth], entitled) / account.least[nth])
    end
  end
  calls = math.max(math.floor(math.min(calls, MAX_AMOUNT)), 1)
  for nth, bound in ipairs(bounds) do
    -- A call that is larger than a limit gets all of it.
    amounts[nth] = math.min(account.least[nth] * calls, bound.limit.per_window)
  end
  return amounts
end

-- Returns amounts as text.
local function text_of(amounts)
  local texts = {}
  for nth, amount in ipairs(amounts) do texts[nth] = string.format('%.0f', amount) end
  return #texts > 0 and table.concat(texts, ',') or '-'
end

-- Returns what a member is told: the number of its advances, the milliseconds since the last one, the number
-- of the draw that it answers, its amounts, what all members had charged then, the number of members, the
-- epoch, the number of the last change of charges, and the milliseconds after which the member must ask again
-- because only time lets its next advance fit, or 0.
local function reply(account, again)
  local age = math.floor((clock - account.given_at) * 1000)
  return string.format('%d %d %d %s %s %d %s %.0f %d', account.advanced, age, account.answered or 0,
    text_of(account.given), text_of(account.charged), members, state.epoch, state.division, again)
end

local advanced = {}
local again = 0
while true do
  local waiting, weights = in_order()
  local first = waiting[1]
  if not first then break end
  local amounts, wait = advance_of(first.account, weights), 0
  for nth, bound in ipairs(bounds) do wait = math.max(wait, wait_for(bound, amounts[nth])) end
  if wait > 0 then
    -- The members ahead take a part of what accrues meanwhile. The first one asks in time. Those behind
    -- it ask a little later, and need not if an advance was pushed to them.
    for rank, entry in ipairs(waiting) do
      if entry.member == id then
        again = math.ceil(wait * 1000) + 1
        if rank > 1 then again = math.max(again, ASKS_AFTER_MS) + ASK_SPREAD_MS * rank end
        again = math.min(again, ASKS_WITHIN_MS)
        break
      end
      local most = 0
      for nth, amount in ipairs(advance_of(entry.account, weights)) do
        most = math.max(most, amount / bounds[nth].limit.per_second)
      end
      wait = wait + most
    end
    break
  end
  local account, part = first.account, 0
  for nth, bound in ipairs(bounds) do
    part = math.max(part, amounts[nth] / bound.limit.per_second)
    take(bound, amounts[nth])
    charge(bound, 0, amounts[nth])
    account.charged[nth] = math.max(bound.sum, 0)
  end
  state.virtual_time = first.start
  account.served = first.start + part / account.weight
  account.waits, account.answered = false, account.draw
  account.given, account.given_at, account.advanced = amounts, clock, account.advanced + 1
  if first.member ~= id then advanced[#advanced + 1] = first.member end
  -- If the member has waited for long, its limits do not count any more.
  apply_limits()
end
for _, member in ipairs(advanced) do
  redis.call('SPUBLISH', state_key .. ':' .. member, reply(accounts[member], 0))
end

-- What was charged remains for the longest window, also without members.
local kept = KEPT_MS
for _, bound in ipairs(bounds) do kept = math.max(kept, bound.limit.window_ms + KEPT_MS) end
kept = string.format('%.0f', kept)
redis.call('HSET', state_key, 'clock', exact_clock, 'wall', exact_wall, 'epoch', state.epoch, 'division',
  string.format('%.0f', state.division), 'kept', kept, 'state', cmsgpack.pack(state))
redis.call('PEXPIRE', state_key, kept)
redis.call('PEXPIRE', heard_key, kept)
return kind == 'leave' and '' or id .. ' ' .. reply(accounts[id], again)

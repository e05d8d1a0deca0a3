-- Applies the message of one member about one resource, and divides the cap among all members.
--
-- The division is that of `tidegate_share::Broker`, with the same names. A test compares both.
--
-- KEYS   the state of the resource; when each member was last heard; exists during a cool-down
-- ARGV   the member, and one of
--        `join`       with the fields of `report`, and the members that it replaces
--        `report`     with the total of granted slots that the member knows of, the total that it has
--                     returned, the number of the last division that it knows of, its cap, its weight, the
--                     slots that it wants, what its adaptive limit has found, and its role, each of the last
--                     two `-` if there is none
--        `heartbeat`  with the two totals and the number of the division
--        `cool_down`  with the milliseconds that the provider asked for
--        `leave`
-- Reply  the name of the member and the text of `reply`, nothing if it leaves, or false if it is not known
--
-- Totals count from the time when the member joined, so a message that is lost or applied twice does no
-- harm. `wall` (the time in seconds) and the constants in capitals are set above this script.

local state_key, heard_key, cool_key = KEYS[1], KEYS[2], KEYS[3]
local id, kind = ARGV[1], ARGV[2]

-- Members with the highest rank become the leader and the deputy of an adaptive limit. REPLACED: was an observer, or
-- was away, and has missed calls. REJOINED: was an observer, and has connected again before its lease ended.
local REPLACED, REJOINED, OBSERVER = 0, 2, 3
-- Numbers above it are not exact.
local MAX_DIVISION = 2 ^ 52
local SENIORITY = { follower = 1, deputy = 4, leader = 5 }

local function field(member)
  return 'member:' .. member
end

local function returned_field(member)
  return 'returned:' .. member
end

local known = redis.call('HMGET', state_key, 'clock', 'wall', 'wake', 'summary', field(id), returned_field(id))
local own, summary = known[5], known[4]

-- The clock of the resource never goes back, and does not jump when the clock of the server does. It
-- is rounded as it is stored, so that no time passes between two messages at the same time.
local step = math.min(math.max(wall - tonumber(known[2] or wall), 0), MAX_STEP)
local clock = tonumber(string.format('%.6f', tonumber(known[1] or 0) + step))
local wake = tonumber(known[3] or 0)

if not own and kind ~= 'join' then
  return false
end

-- Returns what a member is told: the total of its granted slots, 0 or 1 if others are short or 2 if they are
-- owed slots, its fair number, the cap, the number of members, the total of all leases, the number of the last
-- division, the number of appointments, the leader and the deputy of an adaptive limit, the milliseconds of a
-- cool-down, and the milliseconds after which time alone may let slots become free, or 0.
local function reply(fields)
  local cools = math.max(redis.call('PTTL', cool_key), 0)
  local again = math.max(math.ceil((wake - clock) * 1000), 0)
  return string.format('%s %s %d %d', fields, summary, cools, again)
end

local function push(member, fields)
  redis.call('SPUBLISH', state_key .. ':' .. member, reply(fields))
end

if kind ~= 'leave' then
  redis.call('ZADD', heard_key, string.format('%.6f', clock), id)
end
local silent = redis.call('ZRANGEBYSCORE', heard_key, '-inf', string.format('%.6f', clock - LEASE_TIME))

local known_division = math.min(tonumber(ARGV[5] or 0), MAX_DIVISION)

-- A grant may be on its way. A replica that became the primary may have missed messages.
local agrees = own and own:match('^%d+') == ARGV[3] and known[6] == ARGV[4]
  and known_division <= tonumber(summary:match('^%d+ %d+ %d+ (%d+)'))
if kind == 'heartbeat' and agrees and #silent == 0 and (wake == 0 or clock < wake) then
  redis.call('HSET', state_key, 'clock', string.format('%.6f', clock), 'wall', string.format('%.6f', wall))
  redis.call('PEXPIRE', state_key, KEPT_MS)
  redis.call('PEXPIRE', heard_key, KEPT_MS)
  return id .. ' ' .. reply(own)
end

local packed = redis.call('HGET', state_key, 'state')
local state = packed and cmsgpack.unpack(packed)

-- Begins a time in which only a part of the cap is granted.
local function begin_grace()
  state.early, wake = 0, clock + GRACE_TIME
  state.latest_wake = wake + LEASE_TIME
end

if not state then
  -- The members of a lost state have not claimed their slots yet, so newcomers get a part only.
  state = {
    virtual_time = 0, served_until = clock, joined = 0, division = 0, term = 0, observers = {}, accounts = {},
  }
  begin_grace()
end
if known_division > state.division then
  -- The store has lost its last changes: it was an older replica, or its file was not up to date.
  -- It may know of too few leases until all members have sent their totals.
  state.division = known_division
  if wake == 0 or clock >= wake then
    begin_grace()
  end
end
if kind == 'join' and known_division > 0 and clock < wake then
  -- Many members return one after the other, so others may follow.
  wake = math.min(clock + GRACE_TIME, state.latest_wake)
end
local accounts = {}
for _, account in ipairs(state.accounts) do
  accounts[account.id] = account
end

local function leased(account)
  return account.granted - account.returned
end

-- Charges the members for the contended slots that they held since the last call.
local function charge()
  local time = clock - state.served_until
  state.served_until = clock
  for _, account in pairs(accounts) do
    account.service = account.service + math.max(leased(account) - account.fair, 0) * time / account.part
  end
end

-- The members whose calls the observers of an adaptive limit must forget.
local gone = {}

local function remove(member)
  if accounts[member] and accounts[member].adaptive then
    gone[#gone + 1] = member
  end
  accounts[member] = nil
  redis.call('HDEL', state_key, field(member), returned_field(member))
  redis.call('ZREM', heard_key, member)
end

charge()
for _, member in ipairs(silent) do
  remove(member)
end

local cools = false
if kind == 'leave' then
  remove(id)
elseif kind == 'cool_down' then
  local for_ms = math.min(tonumber(ARGV[3]), MAX_COOL_DOWN_MS)
  -- PTTL is negative if the key is missing.
  cools = for_ms > math.max(redis.call('PTTL', cool_key), 0)
  if cools then
    redis.call('SET', cool_key, '', 'PX', for_ms)
  end
else
  local granted, returned = tonumber(ARGV[3]), tonumber(ARGV[4])
  if kind == 'join' then
    local was_member = false
    for index = 11, #ARGV do
      was_member = was_member or accounts[ARGV[index]] ~= nil
      remove(ARGV[index])
    end
    state.joined = state.joined + 1
    local seniority = SENIORITY[ARGV[10]] or SENIORITY.follower
    -- Whoever joins later was away, and has missed calls.
    local is_late = clock >= wake and seniority > SENIORITY.follower
    local late_seniority = was_member and REJOINED or REPLACED
    accounts[id] = {
      id = id, number = state.joined, granted = granted, fair = tonumber(ARGV[6]), part = 1, want = 0,
      service = state.virtual_time, seniority = is_late and late_seniority or seniority,
      short = false, owed = false, told_fair = 0, told_cap = 0,
    }
    state.accounts[#state.accounts + 1] = accounts[id]
  end
  local account = accounts[id]
  local crossing = math.max(account.granted - granted, 0)
  account.granted = math.max(account.granted, granted)
  account.returned = math.min(returned, account.granted)
  if kind ~= 'heartbeat' then
    local weight = tonumber(ARGV[7])
    -- NaN is not equal to itself.
    weight = weight == weight and weight or 1
    account.cap = math.max(math.min(tonumber(ARGV[6]), MAX_CAP), 1)
    account.weight = math.max(math.min(weight, MAX_WEIGHT), MIN_WEIGHT)
    account.want = tonumber(ARGV[8]) - crossing
    if kind == 'report' then
      account.seniority = SENIORITY[ARGV[10]] or account.seniority
    end
    local adapted = account.adaptive
    account.adaptive = tonumber(ARGV[9])
    if adapted and not account.adaptive then
      gone[#gone + 1] = id
    end
    if state.observers[1] == id then
      state.adaptive = account.adaptive
    end
  end
  account.want = math.max(math.min(account.want, account.cap - leased(account)), 0)
end

-- In the order in which they have joined.
local sorted = {}
for _, account in ipairs(state.accounts) do
  if accounts[account.id] == account then
    sorted[#sorted + 1] = account
  end
end
state.accounts = sorted

local cap, total = math.huge, 0
for _, account in ipairs(sorted) do
  cap = math.min(cap, account.cap)
  total = total + leased(account)
end
if redis.call('ZCARD', heard_key) < #sorted then
  -- The server has evicted the key.
  for _, account in ipairs(sorted) do
    redis.call('ZADD', heard_key, 'NX', string.format('%.6f', clock), account.id)
  end
end
if #sorted == 0 then
  redis.call('DEL', state_key, heard_key)
  return ''
end

-- Appoints the leader and the deputy of an adaptive limit. A new leader begins with the limit of the one before.
local adapting = {}
for _, account in ipairs(sorted) do
  if account.adaptive then
    adapting[#adapting + 1] = account
  end
end
table.sort(adapting, function(a, b)
  if a.seniority ~= b.seniority then return a.seniority > b.seniority end
  return a.number < b.number
end)
local leader, deputy = adapting[1], adapting[2]
local before, observers = state.observers, { leader and leader.id, deputy and deputy.id }
local has_new_observers = before[1] ~= observers[1] or before[2] ~= observers[2]

local function is_one_of(two, member)
  return two[1] == member or two[2] == member
end

for _, member in ipairs(before) do
  if accounts[member] and not is_one_of(observers, member) then
    accounts[member].seniority = REPLACED
  end
end
local appoints_another = false
for _, member in ipairs(observers) do
  accounts[member].seniority = math.max(accounts[member].seniority, OBSERVER)
  appoints_another = appoints_another or not is_one_of(before, member)
end
if appoints_another then
  state.term = state.term + 1
end
state.observers = observers
state.adaptive = leader and (state.adaptive or leader.adaptive) or nil
if state.adaptive then
  cap = math.min(math.max(state.adaptive, 1), cap)
end

-- Returns the number of slots per weight up to which each member gets what it needs.
local function level()
  local needed = 0
  for _, account in ipairs(sorted) do
    needed = needed + leased(account) + account.want
  end
  -- What follows takes long if there are many members.
  if needed < cap then
    return cap
  end
  local needs, left, weights = {}, cap, 0
  for _, account in ipairs(sorted) do
    local need = leased(account) + account.want
    needs[#needs + 1] = { need = need, weight = account.weight, number = account.number }
  end
  table.sort(needs, function(a, b)
    local x, y = a.need / a.weight, b.need / b.weight
    return x < y or (x == y and a.number < b.number)
  end)
  for _, entry in ipairs(needs) do
    weights = weights + entry.weight
  end
  for _, entry in ipairs(needs) do
    if entry.need / entry.weight * weights > left then
      return left / weights
    end
    left = left - entry.need
    weights = weights - entry.weight
  end
  return cap
end

local water = level()
for _, account in ipairs(sorted) do
  local exact = water * account.weight
  account.fair = math.floor(exact + 1e-9)
  account.part = math.max(exact - account.fair, MIN_PART)
end

-- Grants free slots. `heap` has the members that want some; the first one is served first.
local heap = {}

local function rank(account)
  account.is_contended = leased(account) >= account.fair
  account.density = leased(account) / account.weight
  account.rank = account.is_contended and math.max(account.service, state.virtual_time) or account.density
end

local function is_before(a, b)
  if a.is_contended ~= b.is_contended then return b.is_contended end
  if a.rank ~= b.rank then return a.rank < b.rank end
  if a.density ~= b.density then return a.density < b.density end
  return a.number < b.number
end

local function sift_down(at)
  while true do
    local first = at
    for child = 2 * at, math.min(2 * at + 1, #heap) do
      if is_before(heap[child], heap[first]) then first = child end
    end
    if first == at then return end
    heap[at], heap[first] = heap[first], heap[at]
    at = first
  end
end

for _, account in ipairs(sorted) do
  account.before = account.granted
  if account.want > 0 then
    rank(account)
    heap[#heap + 1] = account
  end
end
for at = math.floor(#heap / 2), 1, -1 do
  sift_down(at)
end

local free = math.max(cap - total, 0)
if wake > 0 and clock < wake then
  free = math.min(free, math.max(math.floor(cap / 4) - state.early, state.early == 0 and 1 or 0))
else
  wake = 0
end
while free > 0 and #heap > 0 do
  local account = heap[1]
  -- Nobody competes for the slots that the last claimant wants.
  local slots = #heap == 1 and math.min(account.want, free) or 1
  if account.is_contended then
    account.service = account.rank
    state.virtual_time = account.rank
  end
  free = free - slots
  total = total + slots
  state.early = state.early + slots
  account.granted = account.granted + slots
  account.want = account.want - slots
  if account.want > 0 then
    rank(account)
  else
    heap[1] = heap[#heap]
    heap[#heap] = nil
  end
  sift_down(1)
end

-- Tells the members what has changed. Those without slots have nothing to return, and hear it later.
state.division = state.division + 1
summary = string.format('%d %d %d %d %d %s %s', cap, #sorted, total, state.division, state.term,
  observers[1] or '-', observers[2] or '-')
local short, owed = 0, 0
for _, account in ipairs(sorted) do
  local lacks_fair_slots = account.want > 0 and leased(account) < math.max(account.fair, 1)
  short = short + (account.want > 0 and 1 or 0)
  owed = owed + (lacks_fair_slots and 1 or 0)
end
for _, account in ipairs(sorted) do
  local others_short = short > (account.want > 0 and 1 or 0) or total > cap
  -- The fair number matters only while others are short.
  local fair = others_short and account.fair or account.told_fair
  local others_owed = leased(account) > account.fair and (owed > 0 or total > cap)
  local is_new = others_short ~= account.short or others_owed ~= account.owed or fair ~= account.told_fair
  local is_granted = account.granted > account.before
  account.short, account.owed, account.told_fair = others_short, others_owed, fair
  account.before, account.rank, account.density, account.is_contended = nil, nil, nil, nil
  -- A member that holds the whole cap wants nothing until it knows of a higher one.
  local is_raised = cap > account.told_cap and leased(account) >= account.told_cap
  local is_pushed = is_granted or cools or (is_new and leased(account) > 0)
    or (account.adaptive and (is_raised or has_new_observers))
  -- A lower cap may be told by a heartbeat alone.
  account.told_cap = (account.id == id or is_pushed) and cap or math.min(account.told_cap, cap)
  local fields
  if is_new or is_granted or is_pushed or account.id == id then
    local shortage = others_owed and 2 or others_short and 1 or 0
    fields = string.format('%d %d %d', account.granted, shortage, fair)
    redis.call('HSET', state_key, field(account.id), fields, returned_field(account.id),
      string.format('%d', account.returned))
  end
  if account.id == id then
    own = fields
  end
  -- The member that sends this message hears of new observers before what others publish because of them.
  if is_pushed and (account.id ~= id or has_new_observers) then
    push(account.id, fields)
  end
end
for _, member in ipairs(gone) do
  for _, observer in ipairs(observers) do
    if observer ~= member then
      redis.call('SPUBLISH', state_key .. ':' .. observer, 'gone ' .. member)
    end
  end
end

redis.call('HSET', state_key, 'clock', string.format('%.6f', clock), 'wall', string.format('%.6f', wall),
  'wake', string.format('%.6f', wake), 'summary', summary, 'state', cmsgpack.pack(state))
redis.call('PEXPIRE', state_key, KEPT_MS)
redis.call('PEXPIRE', heard_key, KEPT_MS)
return kind == 'leave' and '' or id .. ' ' .. reply(own)

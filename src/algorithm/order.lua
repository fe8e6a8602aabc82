-- Shares and reserves; see `Fair` in order.rs. Runs within state.lua, only if there are any. The key of a tag is that of a level,
-- below 8, or of a share: its number, times 8, plus its level.
local floor, ceil, own, leads, weights = math.floor, math.ceil, fair.own, fair.leads, fair.weights
-- The keys of the rivals that wait, in order: other shares of this level, and other levels. By these keys: all units that wait,
-- and the units of processes that are not overdue.
local ranked, <<everything&, punctual&>> = {}, <<{}, {}>>
for j = 1, competing do
  local rival = rivals[j]
  if rival ~= own then
    if not everything1[rival] then
      ranked[#ranked + 1] = rival
      everything&[rival], punctual&[rival] = 0, 0
    end
    everything&[rival] = everything&[rival] + waiting&[j]
    if now <= deadlines[j] then punctual&[rival] = punctual&[rival] + waiting&[j] end
  end
end
-- A fixed order, as sums of fractions depend on it.
table.sort(ranked)
fair.has_rivals = ranked[1]

-- The part of the capacity that is reserved for a level.
local function reserved(number)
  return (fair.reserves[number + 1] or 0) / 1000000
end

-- So many units in total of these units, the same part of each.
local function portion(part, <<units&>>)
  local all = <<units&| + >>
  if part < 0 then part = 0 end
  if part >= all then return <<units&>> end
  units& = floor(units& * part / all)
  return <<units&>>
end

-- The units ahead of a request, behind `before` units of its own process; by arrival among the requests of its own share.
local by_arrival = ahead
function ahead(arrival, before, horizon_end, on_time)
  local <<sum&>> = by_arrival(arrival, before, horizon_end, on_time)
  local <<from&>> = <<on_time and punctual& or everything&>>
  local start = (leads[own] or 0) + (before + (<<sum&| + >>)) / weights[own]
  for _, rival in ipairs(ranked) do
    if rival > 7 then
      -- Another share is ahead until its requests start as late.
      local <<more&>> = portion(ceil((start - (leads[rival] or 0)) * (weights[rival] or 1)), <<from&[rival]>>)
      sum& = sum& + more&
    end
  end
  -- Other levels: the higher ones, and the lower ones with a reserve as far as that allows.
  local <<others&>> = <<0>>
  for _, rival in ipairs(ranked) do
    if rival < level then others& = others& + from&[rival] end
  end
  before = before + (<<sum&| + >>)
  local parts, owed = 0, 0
  for _, rival in ipairs(ranked) do
    if rival > level and reserved(rival) > 0 then
      parts, owed = parts + reserved(rival), owed + (leads[rival] or 0)
    end
  end
  local free = 1 - parts
  local given = (before + (<<others&| + >>) + owed) / (free > 0.000000001 and free or 0.000000001)
  for _, rival in ipairs(ranked) do
    if rival > level and reserved(rival) > 0 then
      local <<more&>> = portion(ceil((leads[rival] or 0) + reserved(rival) * given), <<from&[rival]>>)
      others& = others& + more&
    end
  end
  -- With a reserve of its own, the others are ahead by no more than that allows.
  local part = reserved(level)
  if part > 0 then
    <<others&>> = portion(floor((before - (leads[level] or 0)) / part - before), <<others&>>)
  end
  return <<sum& + others&>>
end

-- Sets the tags, in order of their keys, after so many units were granted and so many more are charged. `still_waits` is true if
-- requests of this process still wait.
function fair.charge(granted, more, still_waits)
  local tags, has_tag = fair.tags, {}
  for i = 1, #tags do has_tag[tags[i]] = true end
  local function lead_by(number, more)
    if not has_tag[number] then has_tag[number], tags[#tags + 1] = true, number end
    leads[number] = (leads[number] or 0) + more
  end
  for j = 1, competing do still_waits = still_waits or rivals[j] == own end
  -- The weights of all shares of this level that wait, or were granted units; how many wait, and which one waits alone.
  local charged, all, waiting, alone = granted + more, weights[own], 0
  lead_by(own, charged / all)
  for _, rival in ipairs(ranked) do
    if rival > 7 then waiting, alone, all = waiting + 1, rival, all + (weights[rival] or 1) end
  end
  if still_waits then waiting, alone = waiting + 1, own end
  local waits, higher = everything1, false
  for number = 0, 7 do
    local level_waits = waits[number] or number == level and waiting > 0
    local part = reserved(number)
    if part > 0 then
      lead_by(number, part * charged - (number == level and charged or 0))
      -- A level that does not wait saves nothing, and one that waits alone owes nothing.
      if not level_waits and leads[number] > 0 then leads[number] = 0 end
      if not higher and leads[number] < 0 then leads[number] = 0 end
    end
    higher = higher or level_waits
  end
  -- Virtual time goes on as fast as the shares that wait get capacity. If one waits alone, it is at virtual time.
  for _, rival in ipairs(ranked) do
    if rival > 7 then lead_by(rival, 0) end
  end
  local passed, kept = waiting > 0 and granted / all or math.huge, {}
  if waiting == 1 then passed = leads[alone] or 0 end
  for i = 1, #tags do
    local number = tags[i]
    local is_share = number > 7
    local is_here = is_share and number % 8 == level
    local has_demand = waits[number] or number == own and still_waits
    if is_here then
      local lead = leads[number] - passed
      -- A share that does not wait saves nothing.
      leads[number] = (has_demand or lead > 0) and lead or 0
    end
    weights[number] = weights[number] or 1
    local is_weighted = is_share and weights[number] ~= 1 and (has_demand or not is_here)
    if leads[number] ~= 0 or is_weighted then kept[#kept + 1] = number end
  end
  table.sort(kept)
  for i = #kept, 1025, -1 do kept[i] = nil end
  fair.tags = kept
end

-- Shares and reserves; see order.rs. Only if there are any.
local floor, ceil, own, leads, weights = math.floor, math.ceil, fair.own, fair.leads, fair.weights
-- By the number of a share or of a level, in the order of `ranked`: the units that wait, and those whose processes are not
-- overdue.
local ranked, <<everything&, punctual&>> = {}, <<{}, {}>>
for j = 1, live do
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

-- The part of the capacity that a level has for itself.
local function reserved(number)
  return (fair.reserves[number + 1] or 0) / 1000000
end

-- As much of each unit as the part is of all.
local function portion(part, <<units&>>)
  local all = <<units&| + >>
  if part < 0 then part = 0 end
  if part >= all then return <<units&>> end
  units& = floor(units& * part / all)
  return <<units&>>
end

-- The units ahead, as by arrival, behind so many of its own process.
function ahead(arrival, before, finish, on_time)
  local <<sum&>> = <<0>>
  for j = 1, live do
    if rivals[j] == own and (not on_time or now <= deadlines[j]) then
      local time = arrival
      if finish and deadlines[j] > finish then time = time > 50000 and time - 50000 or 0 end
      local <<more&>> = ahead_of(j, time)
      sum& = sum& + more&
    end
  end
  local <<from&>> = <<on_time and punctual& or everything&>>
  local start = (leads[own] or 0) + (before + (<<sum&| + >>)) / weights[own]
  for _, rival in ipairs(ranked) do
    if rival > 7 then
      local <<more&>> = portion(ceil((start - (leads[rival] or 0)) * (weights[rival] or 1)), <<from&[rival]>>)
      sum& = sum& + more&
    end
  end
  local <<others&>> = <<0>>
  for _, rival in ipairs(ranked) do
    if rival < level then others& = others& + from&[rival] end
  end
  before = before + (<<sum&| + >>)
  local parts, owed = 0, 0
  for _, rival in ipairs(ranked) do
    if rival > level and rival < 8 and reserved(rival) > 0 then
      parts, owed = parts + reserved(rival), owed + (leads[rival] or 0)
    end
  end
  local free = 1 - parts
  local given = (before + (<<others&| + >>) + owed) / (free > 0.000000001 and free or 0.000000001)
  for _, rival in ipairs(ranked) do
    if rival > level and rival < 8 and reserved(rival) > 0 then
      local <<more&>> = portion(ceil((leads[rival] or 0) + reserved(rival) * given), <<from&[rival]>>)
      others& = others& + more&
    end
  end
  local part = reserved(level)
  if part > 0 then
    <<others&>> = portion(floor((before - (leads[level] or 0)) / part - before), <<others&>>)
  end
  return <<sum& + others&>>
end

-- The tags after so much was granted. Requests of this process may still wait.
function fair.charge(given, still_waits)
  local tags, is_here, shares_wait = fair.tags, {}, false
  for i = 1, #tags do is_here[tags[i]] = true end
  local function lead_by(number, more)
    if not is_here[number] then is_here[number], tags[#tags + 1] = true, number end
    leads[number] = (leads[number] or 0) + more
  end
  for j = 1, live do still_waits = still_waits or rivals[j] == own end
  lead_by(own, given / weights[own])
  local least = still_waits and leads[own]
  for _, rival in ipairs(ranked) do
    if rival > 7 then
      shares_wait = true
      local lead = leads[rival] or 0
      least = least and least < lead and least or lead
    end
  end
  local waits, higher = everything1, false
  for number = 0, 7 do
    local level_waits = waits[number] or number == level and (still_waits or shares_wait)
    local part = reserved(number)
    if part > 0 then
      lead_by(number, part * given - (number == level and given or 0))
      -- A level that does not wait saves nothing, and one that waits alone owes nothing.
      if not level_waits and leads[number] > 0 then leads[number] = 0 end
      if not higher and leads[number] < 0 then leads[number] = 0 end
    end
    higher = higher or level_waits
  end
  local kept = {}
  for i = 1, #tags do
    local number = tags[i]
    local is_share = number > 7
    local is_level = is_share and number % 8 == level
    if is_level then
      -- Virtual time goes on with the share that is the least ahead.
      local lead = least and leads[number] - least or 0
      leads[number] = lead > 0 and lead or 0
    end
    local is_weighted = is_share and (weights[number] or 1) ~= 1
    local has_demand = not is_level or waits[number] or number == own and still_waits
    weights[number] = weights[number] or 1
    if #kept < 1024 and (leads[number] ~= 0 or is_weighted and has_demand) then kept[#kept + 1] = number end
  end
  fair.tags = kept
end

-- Sends prepared requests with wrk and prints what came of it as one line of JSON.
--
--     wrk -t1 -c64 -d4s -s wrk.lua http://127.0.0.1:8080 -- THINK_MS FILE...
--
-- Each file is one whole HTTP request; they are sent in turn. With a think time above 0 a connection waits before each
-- request, between 0 and twice that long: the load is then about connections / think time, whoever answers.

local requests = {}
local turn = 0

function init(args)
  local think_ms = tonumber(args[1])
  for i = 2, #args do
    local file = assert(io.open(args[i], "rb"))
    requests[i - 1] = file:read("*a")
    file:close()
  end
  if think_ms > 0 then
    delay = function()
      return math.random(0, 2 * think_ms)
    end
  end
end

function request()
  turn = turn % #requests + 1
  return requests[turn]
end

function done(summary, latency)
  local errors = summary.errors
  local form = '\n{"requests":%d,"duration_us":%d,"p50_us":%.0f,"p99_us":%.0f,"refused":%d,"broken":%d}\n'
  local broken = errors.connect + errors.read + errors.write + errors.timeout
  io.write(string.format(form, summary.requests, summary.duration, latency:percentile(50), latency:percentile(99),
    errors.status, broken))
end

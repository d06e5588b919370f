-- Sends prepared requests with wrk and prints what came of it as one line of JSON.
--
--     wrk -t2 -c64 -d4s -s wrk.lua http://127.0.0.1:8080 -- THINK_MS FILE...
--
-- Each file is one whole HTTP request; the threads of wrk take one each, in turn, so a connection always sends the same.
-- With a think time above 0 a connection waits before each request, between 0 and twice that long: the load is then
-- about connections / think time, whoever answers.

local threads = 0
local bytes

function setup(thread)
  thread:set("number", threads)
  threads = threads + 1
end

function init(args)
  local think_ms = tonumber(args[1])
  local file = assert(io.open(args[2 + (number or 0) % (#args - 1)], "rb"))
  bytes = file:read("*a")
  file:close()
  if think_ms > 0 then
    math.randomseed(1 + (number or 0))
    delay = function()
      return math.random(0, 2 * think_ms)
    end
  end
end

function request()
  return bytes
end

function done(summary, latency)
  local errors = summary.errors
  local form = '\n{"requests":%d,"duration_us":%d,"p50_us":%.0f,"p99_us":%.0f,"refused":%d,"broken":%d}\n'
  local broken = errors.connect + errors.read + errors.write + errors.timeout
  io.write(string.format(form, summary.requests, summary.duration, latency:percentile(50), latency:percentile(99),
    errors.status, broken))
end

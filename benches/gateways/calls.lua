-- Calls a tool over and over, for wrk. Arguments: the revision, the tool, a file for the results,
-- and for revisions with sessions their ids, one for each connection.

-- Global, because `done` reads them from the threads.
wrong = 0
results = nil

local id = 0
local meta = ""
local headers = {}
local sessions = {}
local tool

function setup(thread)
    threads = threads or {}
    table.insert(threads, thread)
end

function init(arguments)
    local revision = arguments[1]
    tool, results = arguments[2], arguments[3]
    for index = 4, #arguments do
        table.insert(sessions, arguments[index])
    end
    headers["Content-Type"] = "application/json"
    headers["Accept"] = "application/json, text/event-stream"
    headers["Mcp-Protocol-Version"] = revision
    if #sessions == 0 then
        headers["Mcp-Method"] = "tools/call"
        headers["Mcp-Name"] = tool
        meta = ',"_meta":{"io.modelcontextprotocol/protocolVersion":"' .. revision
            .. '","io.modelcontextprotocol/clientInfo":{"name":"wrk","version":"0"}'
            .. ',"io.modelcontextprotocol/clientCapabilities":{}}'
    end
end

function request()
    id = id + 1
    if #sessions > 0 then
        headers["Mcp-Session-Id"] = sessions[id % #sessions + 1]
    end
    local body = '{"jsonrpc":"2.0","id":' .. id .. ',"method":"tools/call","params":{"name":"'
        .. tool .. '","arguments":{"query":"tea ' .. id .. '"}' .. meta .. "}}"
    return wrk.format("POST", nil, headers, body)
end

-- A result that is an error has the status 200 as well.
function response(status, _, body)
    if status ~= 200 or not string.find(body, "found: tea ", 1, true) then
        wrong = wrong + 1
    end
end

function done(summary, latency)
    local errors = summary.errors
    local sum = errors.connect + errors.read + errors.write + errors.timeout
    for _, thread in ipairs(threads) do
        sum = sum + thread:get("wrong")
    end
    local file = io.open(threads[1]:get("results"), "w")
    file:write(string.format(
        '{"requests":%d,"seconds":%f,"p50":%f,"p99":%f,"errors":%d}\n',
        summary.requests, summary.duration / 1e6, latency:percentile(50) / 1e3,
        latency:percentile(99) / 1e3, sum
    ))
    file:close()
end

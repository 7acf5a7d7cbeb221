// Ranks the pages of the site for each query by the site's own search worker: node rank.js SITE QUERY... prints JSON.
const fs = require("fs"), path = require("path"), vm = require("vm")

const [site, ...queries] = process.argv.slice(2)
const folder = path.join(site, "assets/javascripts/workers")
const worker = fs.readdirSync(folder).find((name) => /^search\..*\.js$/.test(name))
const listeners = []
let answered
const context = vm.createContext({
    console,
    addEventListener: (type, listener) => listeners.push(listener),
    postMessage: (message) => answered(message),
})
context.self = context
vm.runInContext(fs.readFileSync(path.join(folder, worker), "utf8"), context)

const SETUP = 0, QUERY = 2
const ask = (type, data) => new Promise((resolve) => {
    answered = resolve
    listeners.forEach((listener) => listener({data: {type, data}}))
})

async function main() {
    const index = JSON.parse(fs.readFileSync(path.join(site, "search/search_index.json"), "utf8"))
    await ask(SETUP, {...index, options: {suggest: false}})
    const ranks = {}
    for (const query of queries) {
        const {items} = (await ask(QUERY, query)).data
        ranks[query] = items.map((sections) => sections[0].location.split("#")[0])
    }
    console.log(JSON.stringify(ranks))
}

main()

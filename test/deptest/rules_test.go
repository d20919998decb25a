// SPDX-License-Identifier: Apache-2.0

package deptest

import (
	"os"
	"slices"
	"strings"
	"testing"
)

// update has what is made from imports written again.
var update = os.Getenv("CAISSON_UPDATE") != ""

const (
	noProcess   = "the contract is pure: bytes in, values out"
	noYAML      = "the node gets literals; YAML is read where it is written"
	noHelpers   = "it runs credential helpers, and the agent runs nothing that its overlay does not name"
	pure        = "both halves link it, so it stays free of either"
	leaf        = "everything may import it, so it imports nothing"
	authored    = "what an author meant is decided without the programs that act on it"
	writesMedia = "operators write media; nodes assemble none"
	onlyAgent   = "one program runs on a node; nothing else links its parts"
)

// bannedOnNodes is what nothing on a node may link.
var bannedOnNodes = map[string]string{
	Module + "/builder/":                               "the node has no build tools",
	Module + "/release/":                               "layers are made and released elsewhere",
	Module + "/fleet/":                                 "a node knows itself; fleets are published elsewhere",
	Module + "/media/":                                 "a node assembles nothing that firmware starts",
	"github.com/diskfs/":                               "a node writes no images",
	Module + "/spec/site":                              noYAML,
	Module + "/spec/site/":                             noYAML,
	"gopkg.in/yaml.v3":                                 noYAML,
	"go.yaml.in/yaml/v3":                               noYAML,
	"github.com/spf13/cobra":                           "a command line library with completion and pages is for people, not for init",
	"github.com/google/go-containerregistry/pkg/authn": noHelpers,
	"github.com/docker/":                               noHelpers,
}

// rules is the package table of docs/design.md.
var rules = []Rule{
	{Packages: "spec", Only: []string{}, Stdlib: true, Why: pure, Banned: map[string]string{
		"os/exec": noProcess, "net": noProcess, "net/http": noProcess, "golang.org/x/sys/unix": noProcess, "gopkg.in/yaml.v3": noYAML, "go.yaml.in/yaml/v3": noYAML}},
	{Packages: "spec/site/...", Only: []string{"spec/...", "internal/advisory", "internal/plain"}, Why: authored, Banned: map[string]string{
		"os/exec": noProcess, "net/http": noProcess}, // net itself comes with crypto/x509, which reads the site's CAs
		By: []string{"cmd/caisson", "fleet/...", "builder/release", "media/netboot/...", "sandbox/...", "test/..."}, ByWhy: noYAML},
	{Packages: "spec/site/calendar", Only: []string{"spec", "spec/rules", "spec/site/report", "spec/site/shape", "spec/site/tree", "internal/plain"},
		Why: "dates are computed from rules and the tz database, whatever waits for them"},
	{Packages: "spec/site/report", Only: []string{"internal/plain"}, Stdlib: true, Why: leaf},
	{Packages: "spec/site/tree", Only: []string{"spec/site/report", "internal/plain"}, Why: "a tree knows places, not meanings"},
	{Packages: "spec/site/shape", Only: []string{"spec", "spec/rules", "spec/site/report", "spec/site/tree", "internal/plain"}, Why: "a shape knows types and rules, not kinds"},
	{Packages: "spec/site/cluster", Only: []string{"spec/...", "internal/plain"}, Why: "objects are plain data, whoever keeps them", Banned: map[string]string{
		"k8s.io/": "Kubernetes is linked by the module kube alone", "sigs.k8s.io/": "Kubernetes is linked by the module kube alone"},
		By: []string{"fleet/kubectl", "cmd/caisson"}, ByWhy: "an object is read by a verb, or by caisson-kube"},
	{Packages: "spec/rules", Only: []string{"spec"}, Stdlib: true, Why: pure, Banned: map[string]string{
		"net": noProcess, "net/http": noProcess, "golang.org/x/sys/unix": noProcess}},
	{Packages: "spec/refusal", Only: []string{}, Stdlib: true, Why: leaf},

	{Packages: "oci/trust", Only: []string{"internal/verity", "spec/...", "oci", "oci/sign", "oci/internal/...", "spec/refusal", "internal/check", "internal/ownfiles"}, Stdlib: false, Why: "what may be believed is decided from bytes, keys and a clock, never from a node's state"},
	{Packages: "oci", Only: []string{"oci/internal/...", "spec/refusal", "internal/check"}, Stdlib: true, Why: "artifacts know neither how they travel nor what their documents mean"},
	{Packages: "oci/pull", Only: []string{"oci", "oci/internal/...", "spec/refusal", "internal/check", "internal/durable", "internal/ownfiles"}, Stdlib: true, Why: "transport: it knows no document",
		By: []string{"oci/registry", "oci/keychain", "bootagent/...", "builder/release", "fleet/...", "media/netboot/...", "cmd/...", "test/..."}, ByWhy: "what is decided of bytes is decided apart from where they came from"},
	{Packages: "oci/internal/access", By: []string{"oci/pull"}, ByWhy: "credentials go to a registry by one transport"},
	{Packages: "oci/keychain", Only: []string{"oci/...", "spec/refusal", "internal/..."}, Why: "credentials are a host's, whatever is kept there",
		By: []string{"cmd/caisson", "builder/release", "test/..."}, ByWhy: "a node runs no programs for its credentials"},
	{Packages: "oci/keys", Only: []string{"oci/...", "spec/refusal", "internal/..."}, Why: "it opens and writes keys, whatever they sign",
		By: []string{"packaging/hack/attest", "media", "media/netboot", "sandbox/rehearsal", "cmd/caisson", "builder/release", "fleet/...", "test/..."}, ByWhy: "a node holds no private key and asks nobody for a passphrase"},
	{Packages: "oci/sign/...", Only: []string{"oci/...", "spec/refusal", "internal/check", "internal/ownfiles"}, Why: "signatures know digests, not documents", Banned: map[string]string{
		"github.com/google/go-containerregistry/": "the agent links it"}},
	{Packages: "oci/registry", Only: []string{"oci/...", "spec/refusal", "internal/..."}, Why: "pushing and serving know artifacts, not what they mean",
		By: []string{"cmd/caisson", "builder/release", "fleet/...", "media/netboot/...", "media", "sandbox/...", "test/..."}, ByWhy: "go-containerregistry never reaches the agent"},

	{Packages: "layers", Only: []string{"internal/..."}, Why: "a store holds images, whatever they are for"},
	{Packages: "layers/delta", Only: []string{}, Stdlib: true, Why: "chunks are bytes, whatever they are part of",
		By: []string{"builder", "builder/release", "bootagent/fetch/download", "bootagent/fetch/stage", "cmd/caisson", "test/..."}, ByWhy: "the builder makes indexes, and whoever fetches uses them"},
	{Packages: "layers/image/...", Only: []string{"layers", "internal/..."}, Why: "an image is made of a tree, whatever it is for"},
	{Packages: "builder/...", Only: []string{"spec/...", "layers", "layers/delta", "layers/image/...", "packaging/systemd", "internal/..."}, Why: "a layer is made of its recipe alone", Banned: map[string]string{
		Module + "/bootagent/": "the builder copies the agent's binary and never links it",
		Module + "/oci":        "the builder works offline; registries are wired in release and cmd",
		Module + "/spec/site":  "a recipe is all that the builder knows of a site"},
		By: []string{"packaging/hack/attest", "cmd/caisson", "builder/release", "media/netboot", "media", "sandbox", "sandbox/culprit", "fleet/preview", "test/..."}, ByWhy: "only an operator's machine builds"},

	{Packages: "builder/progress", By: []string{"cmd/caisson"}, ByWhy: "programs are told events"},
	{Packages: "builder/release", Only: []string{"spec/...", "layers/...", "builder/...", "oci/...", "oci/trust/...", "packaging/systemd", "internal/..."}, Why: "a layer is an artifact, whichever fleet runs it and whoever asks", Banned: map[string]string{
		"github.com/spf13/": "command lines belong to cmd"},
		By: []string{"cmd/caisson", "fleet/...", "media/netboot", "media", "sandbox/...", "test/..."}, ByWhy: "nodes read layers through trust"},
	{Packages: "media/netboot", Only: []string{"spec/...", "layers/...", "builder/...", "oci/...", "oci/trust/...", "builder/release", "packaging/systemd", "internal/..."}, Why: "a loader is made of a layer and a trust anchor", Banned: map[string]string{
		"github.com/spf13/": "command lines belong to cmd"},
		By: []string{"cmd/caisson", "sandbox", "test/..."}, ByWhy: "firmware reads what it makes, programs do not"},
	{Packages: "media/*", Only: []string{"internal/fatentry"}, Stdlib: true, Why: "a format knows bytes", By: []string{"media"}, ByWhy: writesMedia},
	{Packages: "media", Only: []string{"spec/...", "layers/...", "builder/...", "oci/...", "oci/trust/...", "builder/release", "packaging/systemd", "internal/...", "media/..."}, Why: "a medium is made of a loader", Banned: map[string]string{
		"github.com/spf13/": "command lines belong to cmd"},
		By: []string{"cmd/caisson", "sandbox", "test/..."}, ByWhy: writesMedia},
	{Packages: "sandbox/plug", Only: []string{"spec", "internal/cli", "internal/plain", "internal/machine"}, Why: "cards are connected as an overlay names them, whatever the machine boots",
		By: []string{"sandbox"}, ByWhy: "it is how a sandbox plugs its machine in"},
	{Packages: "sandbox/culprit", Only: []string{"sandbox", "sandbox/picture", "sandbox/plug", "spec/...", "layers/...", "builder/...", "oci/...", "oci/trust/...", "builder/release", "fleet/...", "media/netboot/...", "media/...", "packaging/systemd", "internal/..."}, Why: "it boots what a fleet keeps", By: []string{"cmd/caisson"}, ByWhy: "who asks is an operator"},
	{Packages: "spec/site/compare", Only: []string{"spec/...", "internal/..."}, Why: "overlays and layers are plain data, whatever boots them", By: []string{"spec/site/plan", "sandbox/culprit"}, ByWhy: "others ask for a plan"},
	{Packages: "sandbox/picture", Only: []string{}, Why: "a fault of the agent must not be repeated by what looks at its work",
		By: []string{"sandbox", "sandbox/rehearsal", "cmd/caisson"}, ByWhy: "machines that are thrown away are looked at"},
	{Packages: "sandbox/rehearsal", Only: []string{"sandbox", "sandbox/picture", "sandbox/plug", "spec/...", "layers/...", "builder/...", "oci/...", "oci/trust/...", "builder/release", "fleet/...", "media/netboot/...", "media/...", "packaging/systemd", "internal/..."},
		Why: "a way is walked in a sandbox, however the operator asks", By: []string{"cmd/caisson"}, ByWhy: "an operator rehearses; nothing that is published depends on it"},
	{Packages: "sandbox", Only: []string{"sandbox/plug", "sandbox/picture", "spec/...", "layers/...", "builder/...", "oci/...", "oci/trust/...", "builder/release", "fleet/...", "media/netboot/...", "media/...", "packaging/systemd", "internal/..."}, Why: "a node is tried with what it would get, however the operator asks", Banned: map[string]string{
		"github.com/spf13/":      "command lines belong to cmd",
		Module + "/fleet/policy": "it signs with keys of its own and opens no other",
		Module + "/fleet/hub":    "nobody is told of a node that is tried",
		Module + "/test/":        "tests start machines by internal/machine, too"},
		By: []string{"cmd/caisson", "sandbox/..."}, ByWhy: "an operator tries nodes; nothing that is published depends on it"},
	{Packages: "fleet/...", Only: []string{"spec/...", "layers/...", "builder/...", "oci/...", "oci/trust/...", "builder/release", "packaging/systemd", "internal/..."}, Why: "a fleet is what its nodes are sent, not how the operator asks", Banned: map[string]string{
		"github.com/spf13/": "command lines belong to cmd"},
		By: []string{"cmd/caisson", "sandbox/...", "test/..."}, ByWhy: "a node knows itself; fleets are published elsewhere"},
	{Packages: "fleet/report", Only: []string{"spec", "spec/rules", "oci", "oci/sign", "oci/internal/...", "spec/refusal", "fleet/view", "internal/..."}, Why: "what a report counts for follows from the report and the key, wherever both are kept",
		By: []string{"fleet/hub", "fleet/query", "fleet/rollout", "fleet/server", "fleet/service", "cmd/caisson"}, ByWhy: "one place takes reports, who drives a rollout verifies them again, and the service reads those in a registry"},
	{Packages: "fleet/view", Only: []string{"spec", "spec/rules", "spec/refusal", "internal/plain"}, Stdlib: true, Why: "what stands out in a fleet follows from rows and a time",
		By: []string{"fleet/hub", "fleet/metrics", "fleet/query", "fleet/server", "fleet/report", "fleet/rollout", "fleet/attest", "cmd/caisson", "test/tpmtest"}, ByWhy: "it is shown to operators, and rollouts go by it"},
	{Packages: "fleet/store", Only: []string{"spec", "fleet/audit", "internal/..."}, Why: "a database keeps and judges nothing",
		By: []string{"fleet/hub", "fleet/service", "cmd/caisson"}, ByWhy: "nodes and publishers have no database"},
	{Packages: "fleet/evidence", By: []string{"fleet/rollout", "sandbox", "sandbox/rehearsal"}, ByWhy: "nodes ask for no rehearsal"},
	{Packages: "fleet/analysis", Only: []string{"spec", "spec/rules", "internal/plain"}, Why: "values are compared, whatever follows from it",
		By: []string{"fleet/rollout", "cmd/caisson"}, ByWhy: "a rollout goes by it, and who drives one says where the Prometheus is"},
	{Packages: "fleet/rollout", By: []string{"fleet/hub", "fleet/metrics", "fleet/query", "fleet/server", "fleet/service", "fleet/preview", "cmd/caisson"}, ByWhy: "nodes know of no waves"},
	{Packages: "fleet/hub", By: []string{"fleet/query", "fleet/server", "fleet/service", "cmd/caisson"}, ByWhy: "the service is one program"},
	{Packages: "fleet/query", By: []string{"fleet/metrics", "fleet/server", "fleet/replace", "fleet/service", "cmd/caisson"}, ByWhy: "who answers sends it, and who asks prints it"},
	{Packages: "fleet/server", By: []string{"fleet/service", "cmd/caisson"}, ByWhy: "the service is one program"},
	{Packages: "fleet/metrics", By: []string{"fleet/server"}, ByWhy: "the service is one program"},
	{Packages: "fleet/people", Only: []string{"internal/..."}, Why: "who asks follows from a provider and a file, whatever is asked",
		By: []string{"fleet/server", "fleet/service", "cmd/caisson"}, ByWhy: "people log in to the service alone"},
	{Packages: "fleet/audit", Only: []string{}, Stdlib: true, Why: "rows are chained, wherever they are kept",
		By: []string{"fleet/attest", "fleet/store", "fleet/hub", "fleet/server", "fleet/webhook", "cmd/caisson"}, ByWhy: "the service writes them, and operators check them"},
	{Packages: "fleet/webhook", Only: []string{"fleet/audit"}, Stdlib: true, Why: "a message is sent, whatever changed", By: []string{"fleet/service"}, ByWhy: "the service is one program"},
	{Packages: "fleet/unknown", Only: []string{"internal/..."}, Why: "it takes note of names, whatever they are for", By: []string{"fleet/server", "cmd/caisson"}, ByWhy: "what strangers say decides nothing"},
	{Packages: "fleet/git", Only: []string{"spec", "spec/rules", "internal/..."}, Why: "it knows repositories, not what their files are for", By: []string{"fleet/content", "sandbox/culprit", "cmd/caisson"}, ByWhy: "a server is asked by verbs that say so; a publish of what is there asks the site's own directory for its commit"},
	{Packages: "fleet/content", Only: []string{"spec/...", "layers/image", "oci", "oci/...", "spec/refusal", "fleet/git", "internal/..."}, Why: "files go from a repository to a registry, whatever is published of them", By: []string{"fleet/service", "cmd/caisson", "sandbox"}, ByWhy: "a publisher is told what to push first, and what is kept is copied by its tag"},
	{Packages: "fleet/mirror", By: []string{"cmd/caisson"}, ByWhy: "a copy is what an operator asks for"},
	{Packages: "fleet/attest", By: []string{"fleet/server", "fleet/service", "cmd/caisson", "test/..."}, ByWhy: "operators and the service ask, and nothing that is published depends on it"},
	{Packages: "fleet/seal", Only: []string{"spec/...", "internal/..."}, Why: "what is sealed follows from a site, locks and values, wherever it is published", By: []string{"fleet/replace", "cmd/caisson"}, ByWhy: "secrets are opened by verbs that say so"},
	{Packages: "fleet/replace", By: []string{"cmd/caisson"}, ByWhy: "who replaces a machine is an operator"},
	{Packages: "fleet/reserve", Only: []string{"oci", "oci/pull", "oci/registry", "oci/internal/...", "spec/refusal", "internal/..."}, Why: "whose turn it is follows from tags and clocks, whatever is written", By: []string{"fleet/publish", "fleet/published", "fleet/verify", "fleet/prune", "fleet/mirror", "test/..."}, ByWhy: "who writes a fleet waits for its turn, who looks says who is at it, and who copies one leaves turns out"},
	{Packages: "fleet/hold", By: []string{"fleet/rollout", "sandbox", "cmd/caisson"}, ByWhy: "operators and rollouts hold nodes; a publish goes by what a row says of that"},
	{Packages: "fleet/prune", By: []string{"cmd/caisson"}, ByWhy: "an operator removes; nothing that is published depends on it"},
	{Packages: "fleet/rotate", By: []string{"fleet/policy"}, ByWhy: "which keys are to count is what a site says"},
	{Packages: "fleet/verify", By: []string{"fleet/mirror", "cmd/caisson", "test/..."}, ByWhy: "an operator asks, and who copies a fleet looks before and after"},
	{Packages: "fleet/relay", Only: []string{"oci", "oci/registry", "oci/pull", "oci/keys", "oci/internal/...", "spec/refusal", "internal/..."}, Why: "bytes are kept by digest, whatever they mean",
		By: []string{"cmd/caisson"}, ByWhy: "a node asks a relay as any registry"},
	{Packages: "fleet/service", By: []string{"cmd/caisson"}, ByWhy: "the service is one program"},
	{Packages: "fleet/kubectl", Only: []string{"spec/...", "internal/..."}, Why: "a cluster is asked for objects, whatever is done with the site", By: []string{"cmd/caisson"}, ByWhy: "caisson-kube asks the API server itself"},
	{Packages: "fleet/policy", By: []string{"fleet/preview", "cmd/caisson"}, ByWhy: "a publisher is given its policy; it opens no key files"},

	{Packages: "bootagent/...", Only: []string{"spec/...", "layers", "layers/delta", "oci", "oci/pull", "oci/sign", "oci/internal/...", "oci/trust/...", "internal/..."}, Why: "a node links what a node does", Banned: bannedOnNodes,
		By: []string{"cmd/caisson-agent", "test/..."}, ByWhy: onlyAgent},
	{Packages: "bootagent/items/*", Apart: "kinds are independent: the table in package items is the only place that knows them all", Shared: []string{"bootagent/items/item", "bootagent/items/tunable", "bootagent/items/files", "bootagent/items/item/netif", "bootagent/items/units"},
		By: []string{"bootagent/items", "bootagent/items/item/...", "bootagent/node/session", "bootagent/node/stacked", "bootagent/node/effect", "bootagent/node/early", "bootagent/node/look", "bootagent/node", "bootagent/boot/...", "bootagent/record", "bootagent/record/journal", "bootagent/record/state", "bootagent/operation", "bootagent/sense/watch", "test/contract", "test/itemtest"}, ByWhy: "what a kind does is reached through the table"},
	{Packages: "bootagent/items/secrets", Only: []string{"bootagent/items/item", "bootagent/tpm", "spec", "spec/rules", "internal/..."}, Why: "it opens what it is given, whatever that is for",
		By: []string{"bootagent/items", "bootagent/node/session", "bootagent/node/effect", "bootagent/boot/handover", "bootagent/boot/initramfs"}, ByWhy: "the other kinds are told what there is, a loader reaches its registry by what is its own, and the node shows its key"},
	{Packages: "bootagent/items/item/netif", Only: []string{"spec"}, Why: "it finds interfaces, whatever is wanted of them",
		By: []string{"bootagent/items/nics", "bootagent/items/tunable", "bootagent/boot/identity", "bootagent/boot/network"}, ByWhy: "kinds set something of interfaces, and the loader tells its node by them and makes some of those that are there"},
	{Packages: "bootagent/items/tunable", Only: []string{"bootagent/items/item/...", "spec/...", "internal/..."}, Why: "it keeps files with values, and reads no unit and no registry",
		By: []string{"bootagent/items", "bootagent/items/modules", "bootagent/items/nics"}, ByWhy: "several kinds of file, one set of rules"},
	{Packages: "bootagent/program", By: []string{"cmd/caisson-agent"}, ByWhy: "the service is a verb of one program, and so is what makes a host a node"},
	{Packages: "bootagent/sense/gate", Only: []string{"spec", "spec/rules", "bootagent/process", "internal/..."}, By: []string{"bootagent/node/soak", "bootagent/node/operate", "bootagent/node/cycle", "bootagent/node", "bootagent/tell/say"}, Why: "health checks are looked at by a node; they know no items, no state and no registry", ByWhy: "a node decides what follows, and says what it waits for"},
	{Packages: "bootagent/record/takeover", Only: []string{"spec", "spec/rules", "internal/..."}, Why: "it tells originals as items and knows no kind",
		By: []string{"bootagent/node/effect", "bootagent/program", "test/contract"}, ByWhy: "only a node's first run takes over"},
	{Packages: "bootagent/tell/events", Only: []string{"spec", "spec/rules", "spec/refusal", "bootagent/decide", "bootagent/record", "bootagent/record/state", "bootagent/items/item", "internal/..."}, Why: "it writes what it is given, whatever happened or was decided",
		By: []string{"bootagent/node/session", "bootagent/node/stacked", "bootagent/node/policy", "bootagent/node/effect", "bootagent/node/destination", "bootagent/node/soak", "bootagent/tell/post", "bootagent/node/operate", "bootagent/node/early", "bootagent/node/look", "bootagent/node/cycle", "bootagent/node", "bootagent/rescue/letin", "bootagent/program", "bootagent/boot/initramfs", "cmd/caisson-agent", "test/traces"}, ByWhy: "the loader and the node know what is worth noting; nothing is decided by what is in the black box"},
	{Packages: "bootagent/decide", Only: []string{"bootagent/record", "bootagent/record/state", "bootagent/items/item", "spec", "internal/..."}, Why: "a decision is a function of values: it reads nothing, waits for nothing, and has no clock",
		By: []string{"bootagent/node/session", "bootagent/node/effect", "bootagent/node/destination", "bootagent/node/operate", "bootagent/node/early", "bootagent/node/cycle", "bootagent/node", "bootagent/boot/initramfs", "bootagent/tell/events", "test/traces", "bootagent/node/soak"}, ByWhy: "the loader and the node read the facts and act"},
	{Packages: "bootagent/sense/watch", Only: []string{"bootagent/sense/watch/bpf", "bootagent/items/item", "spec", "internal/..."}, Why: "it tells that something may be different, and looks at nothing itself",
		By: []string{"bootagent/program"}, ByWhy: "the service watches; verbs look"},
	{Packages: "bootagent/sense/watch/bpf", Only: []string{}, Why: "it knows the kernel's calls, not what is wanted",
		By: []string{"bootagent/sense/watch", "bootagent/node/policy"}, ByWhy: "who writes parameters is a question of the watch, and who may one of the node"},
	{Packages: "bootagent/sense/uptime", Only: []string{"spec", "internal/..."}, Why: "it keeps times, and knows neither a step nor what has to prove itself",
		By: []string{"bootagent/items", "bootagent/node/session", "bootagent/node/effect", "bootagent/node/destination", "bootagent/node/soak", "bootagent/node", "bootagent/operation", "bootagent/program", "bootagent/tell/metrics", "bootagent/tell/say", "bootagent/rescue/letin", "bootagent/boot/root", "bootagent/boot/initramfs"}, ByWhy: "who takes steps notes them and waits by the same clock, or says what is waited for; the loader has a deadline begin, and the node ends it"},
	{Packages: "bootagent/tell/metrics", Only: []string{"spec", "spec/rules", "spec/refusal", "bootagent/record", "bootagent/record/state", "bootagent/items/item", "bootagent/sense/uptime", "bootagent/process", "internal/..."}, Why: "figures are made of what is known, not looked for; of the windows it asks the calendar",
		By: []string{"bootagent/node/session", "bootagent/node/look", "bootagent/node/cycle", "bootagent/program"}, ByWhy: "a node has the facts, the service answers"},
	{Packages: "bootagent/record", Only: []string{"bootagent/record/state", "bootagent/items/item", "spec", "internal/..."}, By: []string{"bootagent/boot/...", "bootagent/decide", "bootagent/tell/events", "bootagent/tell/metrics", "bootagent/tell/say", "bootagent/tell/post", "bootagent/program/bootdisk", "test/...", "bootagent/node/session", "bootagent/node/stacked", "bootagent/node/policy", "bootagent/node/effect", "bootagent/node/destination", "bootagent/node/soak", "bootagent/node/operate", "bootagent/node/early", "bootagent/node/look", "bootagent/node/cycle", "bootagent/node", "bootagent/program"}, Why: "it saves what it is given, and knows no reason for it", ByWhy: "who changes what is written down hands over a change; the loader begins the record of a boot, and who decides or tells reads it"},
	{Packages: "bootagent/node/session", By: []string{"bootagent/node", "bootagent/rescue/letin", "bootagent/program", "bootagent/program/bootdisk", "cmd/caisson-agent"}, ByWhy: "an open node is for what is done to it in one go: its parts, and who makes it"},
	{Packages: "bootagent/node/stacked", By: []string{"bootagent/node/effect", "bootagent/node/destination", "bootagent/node/look", "bootagent/node/cycle", "bootagent/node"}, ByWhy: "a root has layers for whoever changes it or leaves it"},
	{Packages: "bootagent/node/policy", Only: []string{"bootagent/record", "bootagent/record/state", "bootagent/sense/watch/bpf", "bootagent/tell/events", "bootagent/decide", "bootagent/items/item", "spec", "spec/rules", "spec/refusal", "internal/..."}, Why: "it judges differences and guards values, whatever they are of",
		By: []string{"bootagent/node/effect", "bootagent/node/look", "bootagent/node"}, ByWhy: "a node decides what it does about drift, and the kernel guards what is in effect for as long as that"},
	{Packages: "bootagent/node/effect", By: []string{"bootagent/node/destination", "bootagent/node/soak", "bootagent/node/operate", "bootagent/node/look", "bootagent/node/cycle", "bootagent/node", "bootagent/node/early"}, ByWhy: "what is in effect is looked at, changed and left by the parts above"},
	{Packages: "bootagent/node/destination", By: []string{"bootagent/node/operate", "bootagent/node/look", "bootagent/node/cycle", "bootagent/node"}, ByWhy: "a machine is started over by a decision, an operation or an operator"},
	{Packages: "bootagent/node/soak", By: []string{"bootagent/node/operate", "bootagent/node/look", "bootagent/node/cycle", "bootagent/node", "bootagent/node/early"}, ByWhy: "what has to prove itself is decided upon, waited for and shown"},
	{Packages: "bootagent/tell/post", Only: []string{"bootagent/record", "bootagent/record/state", "bootagent/record/track", "bootagent/tell/events", "bootagent/decide", "bootagent/items/item", "spec/...", "oci", "oci/pull", "oci/sign", "oci/internal/...", "oci/trust/...", "internal/..."}, Why: "it signs and sends what it is given; package look knows what is true, package fetch how a request is made",
		By: []string{"bootagent/node/session", "bootagent/node/operate", "bootagent/node", "bootagent/program", "bootagent/fetch", "cmd/caisson-agent"}, ByWhy: "turns are asked for, and reports are sent, as one machine, with one key"},
	{Packages: "bootagent/node/operate", By: []string{"bootagent/node/look", "bootagent/node/cycle", "bootagent/node"}, ByWhy: "operations are run by the node and shown"},
	{Packages: "bootagent/node/early", By: []string{"bootagent/node/cycle", "bootagent/node"}, ByWhy: "whether anything is set before services start is decided first"},
	{Packages: "bootagent/node/look", By: []string{"bootagent/node/cycle", "bootagent/node"}, ByWhy: "a status is what comes of an act, and what a verb shows"},
	{Packages: "bootagent/node/cycle", By: []string{"bootagent/node"}, ByWhy: "a node is changed by its verbs alone"},
	{Packages: "bootagent/rescue", Only: []string{"spec/...", "oci", "oci/sign", "oci/internal/...", "oci/trust/...", "internal/..."}, By: []string{"bootagent/rescue/letin", "bootagent/node/look", "bootagent/boot/initramfs"}, Why: "it keeps who is let in, and opens nothing", ByWhy: "the loader and the node share one book, and the node asks it for sshd"},
	{Packages: "bootagent/rescue/letin", By: []string{"bootagent/program", "cmd/caisson-agent"}, ByWhy: "the service looks who is let in, and sshd asks"},
	{Packages: "bootagent/program/bootdisk", By: []string{"bootagent/program", "cmd/caisson-agent"}, ByWhy: "the service keeps the disk, a verb installs one"},
	{Packages: "bootagent/operation", Only: []string{"spec", "spec/rules", "bootagent/process", "bootagent/sense/uptime", "internal/..."}, By: []string{"bootagent/node/soak", "bootagent/node/operate", "bootagent/node"}, Why: "operations are run by a node; they know no items and no registry", ByWhy: "a node decides when it acts"},
	{Packages: "bootagent/process", Only: []string{"internal/..."}, Why: "running a program knows no script and no policy",
		By: []string{"bootagent/items", "bootagent/items/exec", "bootagent/node/session", "bootagent/node/effect", "bootagent/node/destination", "bootagent/node/soak", "bootagent/node/operate", "bootagent/operation", "bootagent/sense/gate", "bootagent/program", "bootagent/rescue/letin", "cmd/caisson-agent", "bootagent/node"}, ByWhy: "whoever runs programs runs them the same way"},
	{Packages: "bootagent/tell/say", Only: []string{"spec", "spec/rules", "spec/refusal", "bootagent/sense/gate", "bootagent/items/item", "bootagent/record/journal", "bootagent/process", "bootagent/record", "bootagent/record/state", "bootagent/sense/uptime", "internal/..."},
		Why: "it says what it is given, and needs no node to be asked", By: []string{"bootagent/node/session", "bootagent/node/effect", "bootagent/node/look", "bootagent/node", "bootagent/node/stacked"}, ByWhy: "a node knows what it is"},
	{Packages: "bootagent/tell/screen", Only: []string{"spec/...", "oci", "oci/sign", "oci/internal/...", "oci/trust/...", "internal/..."}, By: []string{"bootagent/boot/initramfs", "cmd/caisson-agent"}, Why: "it words what is or failed, and tries nothing", ByWhy: "the loader knows what it has tried, and a verb what it has found"},
	{Packages: "bootagent/tpm", Only: []string{"spec", "internal/..."}, By: []string{"bootagent/boot/initramfs", "bootagent/boot/root", "bootagent/items/secrets", "bootagent/node/session", "bootagent/node", "cmd/caisson-agent", "test/tpmtest"}, Why: "it gives commands and keeps a log, and decides nothing", ByWhy: "who enters a kernel or a root says so before, a verb and reports show it, who opens a disk asks for the epoch, and a key of secrets is sealed where it is made"},
	{Packages: "bootagent/boot/handover", By: []string{"bootagent/boot/root", "bootagent/boot/initramfs"}, ByWhy: "who makes a root says what node it is"},
	{Packages: "bootagent/boot/network", By: []string{"bootagent/boot/initramfs"}, ByWhy: "in a root, systemd-networkd makes the network"},
	{Packages: "bootagent/boot/network/table", Only: []string{"spec", "spec/rules", "bootagent/record", "bootagent/record/state", "bootagent/items/item", "internal/..."}, By: []string{"bootagent/boot/network", "bootagent/boot/initramfs", "bootagent/boot/kernel", "bootagent/boot/root", "bootagent/boot/handover"}, Why: "it decides from what it is given, looks at nothing and writes nothing", ByWhy: "a loader makes what it says, words go on over a kexec, and who hands a root over says what is in it"},
	{Packages: "bootagent/boot/network/lease", Only: []string{"bootagent/record", "bootagent/record/state", "bootagent/items/item", "spec", "internal/..."}, By: []string{"bootagent/boot/network"}, Why: "it asks, and configures nothing", ByWhy: "who makes addresses asks for them"},
	{Packages: "bootagent/boot/kernel", By: []string{"bootagent/boot/initramfs"}, ByWhy: "the unit of the service denies the calls"},
	{Packages: "bootagent/boot/root", By: []string{"bootagent/boot/initramfs", "bootagent/node/destination", "bootagent/node/look"}, ByWhy: "a root is entered by the loader or by a soft-reboot, and its profiles are looked at"},
	{Packages: "bootagent/fetch", By: []string{"cmd/caisson-agent"}, ByWhy: "the program that starts itself to ask says so; the packages below take any source"},
	{Packages: "bootagent/boot/loader", Only: []string{"spec", "layers", "internal/..."}, By: []string{"bootagent/program/bootdisk", "bootagent/boot/initramfs"}, Why: "it knows loaders and what lies beside them, and neither registry nor boot", ByWhy: "the node says when a boot was good, the loader whether it is on trial, and both look for what a medium carries"},
	{Packages: "bootagent/boot/...", Only: []string{"spec/...", "layers", "layers/delta", "oci", "oci/pull", "oci/sign", "oci/internal/...", "oci/trust/...", "internal/...", "bootagent/tpm", "bootagent/boot/loader/...", "bootagent/record/track", "bootagent/decide", "bootagent/tell/screen", "bootagent/tell/events", "bootagent/record", "bootagent/record/state", "bootagent/sense/uptime", "bootagent/fetch/download", "bootagent/rescue", "bootagent/fetch/stage", "bootagent/items/item/netif", "bootagent/items/item", "bootagent/items/tunable", "bootagent/items/accounts", "bootagent/items/units", "bootagent/items/files", "bootagent/items/modules", "bootagent/items/secrets", "bootagent/items/service"},
		Why: "a root comes to life before anything is applied"},

	{Packages: "internal/cli", Only: []string{"internal/plain"}, Stdlib: true, Why: leaf},
	{Packages: "internal/paths", Only: []string{}, Stdlib: true, Why: leaf},
	{Packages: "internal/digest", Only: []string{}, Stdlib: true, Why: leaf},
	{Packages: "internal/fault", Only: []string{}, Stdlib: true, Why: leaf},
	{Packages: "internal/mediatype", Only: []string{}, Stdlib: true, Why: leaf},
	{Packages: "internal/plain", Only: []string{}, Stdlib: true, Why: leaf},
	{Packages: "internal/program", Only: []string{"internal/plain"}, Why: "it runs what it is told to, whatever is asked",
		By: []string{"oci/keys", "oci/keychain", "fleet/seal"}, ByWhy: "a node runs no programs for its keys and secrets"},
	{Packages: "internal/advisory", Only: []string{"internal/plain"}, Why: "it knows the tracker's form and Debian's versions, not where packages are", By: []string{"builder/packages", "builder/release", "fleet/history", "fleet/preview", "spec/site/plan"}, ByWhy: "a node asks nobody for advisories"},
	{Packages: "internal/httpserver", Only: []string{"internal/durable", "internal/ownfiles", "internal/check"}, Why: "it serves whatever it is given",
		By: []string{"cmd/caisson", "bootagent/tell/metrics", "media/netboot/...", "fleet/...", "sandbox", "test/..."}, ByWhy: "a node answers nobody but itself"},
	{Packages: "internal/efivar", Only: []string{"internal/cms"}, Why: "an update is bytes, whatever firmware takes it",
		By: []string{"media", "cmd/caisson", "sandbox", "bootagent/boot/initramfs", "bootagent/boot/root", "bootagent/node/destination", "bootagent/program/bootdisk"}, ByWhy: "a node reads variables, and is given updates that are signed"},
	{Packages: "internal/cpio", Only: []string{}, Stdlib: true, Why: leaf},
	{Packages: "internal/verity", Only: []string{}, Stdlib: true, Why: "a tree is made of bytes, whatever they are part of",
		By: []string{"layers", "builder", "builder/release", "oci/trust", "bootagent/...", "cmd/caisson", "test/..."}, ByWhy: "the builder makes roots, nodes make trees, and all compare the two"},
	{Packages: "internal/durable", Only: []string{}, Stdlib: true, Why: leaf},
	{Packages: "internal/ownfiles", Only: []string{"internal/check", "internal/durable"}, Stdlib: true, Why: leaf},
	{Packages: "internal/perhost", Only: []string{}, Stdlib: true, Why: "a table that both halves read belongs to neither",
		By: []string{"builder", "builder/base", "bootagent/boot/handover"}, ByWhy: "layers leave out what a node makes before its first process"},
	{Packages: "internal/safepath", Only: []string{}, Why: leaf},
	{Packages: "internal/machine", Only: []string{}, Why: "a machine boots whatever it is given", Banned: map[string]string{"testing": "the demo starts machines, too"},
		By: []string{"sandbox/...", "test/..."}, ByWhy: "a machine is started to test caisson, or to try a node"},
	{Packages: "cmd/...", By: []string{}, ByWhy: "a program is the end of the line"},
	{Packages: "test/storetest", Only: []string{"internal/...", "test/require"}, Why: "a test's database has no tables yet", By: []string{}, ByWhy: "its databases are for tests"},
	{Packages: "test/powercut", Only: []string{}, Why: "it knows disks, whatever writes to them", By: []string{}, ByWhy: "it is for tests"},
	{Packages: "test/doctext", Only: []string{}, Stdlib: true, Why: "a page is text, whatever it is about", By: []string{}, ByWhy: "pages are held to programs by tests"},
	{Packages: "test/roottest", By: []string{}, ByWhy: "its layers are for tests"},
}

// TestRules holds the package table of docs/design.md.
func TestRules(t *testing.T) {
	all := List(t, "./...")
	for _, r := range rules {
		t.Run(strings.NewReplacer("/...", "", "/*", " apart").Replace(r.Packages), func(t *testing.T) {
			for _, v := range Violations(r, all) {
				t.Error(v)
			}
		})
	}
}

// TestPackagesForTests: a package that is for tests alone is below test.
func TestPackagesForTests(t *testing.T) {
	for _, p := range List(t, "./...") {
		if slices.Contains(p.Imports, "testing") && !matches("test/...", p.own()) {
			t.Errorf("%s imports testing and is not below test", p.own())
		}
	}
}

// TestAgentClosure holds the agent's list of foreign packages to the golden
// file, so that each addition is seen in review. Rewrite it with -update.
func TestAgentClosure(t *testing.T) {
	golden := "../../cmd/caisson-agent/deps.txt"
	out, err := Go("list", "-deps", "-f", "{{if not .Standard}}{{.ImportPath}}{{end}}", "./cmd/caisson-agent")
	if err != nil {
		t.Fatal(err)
	}
	deps := strings.Fields(out)
	slices.Sort(deps)
	got := strings.Join(deps, "\n") + "\n"
	if update {
		if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("the agent's closure changed; look at the difference, then run this test with CAISSON_UPDATE=1\ngot:\n%s", got)
	}
	for _, dep := range deps {
		for banned, why := range map[string]string{
			"gopkg.in/yaml": noYAML, "github.com/spf13/": "for people", "github.com/google/go-containerregistry": noHelpers,
			"github.com/sigstore/": "seventy modules to check one signature", "github.com/diskfs/": "the node writes no images", "github.com/theupdateframework/": "see docs/rationale.md",
			Module + "/builder": "no build tools on nodes"} {
			if strings.HasPrefix(dep, banned) {
				t.Errorf("the agent links %s: %s", dep, why)
			}
		}
	}
}

// TestViolationsAreSeen keeps the test of rules from passing blindly.
func TestViolationsAreSeen(t *testing.T) {
	p := func(name string, imports ...string) Package {
		for i := range imports {
			if !strings.Contains(imports[i], ".") {
				imports[i] = Module + "/" + imports[i]
			}
		}
		return Package{ImportPath: Module + "/" + name, Imports: imports, Deps: imports}
	}
	all := []Package{p("a", "b"), p("b"), p("k/x", "k/y"), p("k/y"), p("c", "example.org/z")}
	for _, c := range []struct {
		rule Rule
		want int
	}{
		{Rule{Packages: "a", Only: []string{}, Why: "w"}, 1},
		{Rule{Packages: "a", Only: []string{"b"}, Why: "w"}, 0},
		{Rule{Packages: "a", Only: []string{"b"}}, 1}, // no reason
		{Rule{Packages: "c", Stdlib: true, Why: "w"}, 1},
		{Rule{Packages: "c", Banned: map[string]string{"example.org/": "w"}}, 1},
		{Rule{Packages: "b", By: []string{}, ByWhy: "w"}, 1},
		{Rule{Packages: "b", By: []string{"a"}, ByWhy: "w"}, 0},
		{Rule{Packages: "b", By: []string{"a"}}, 1}, // no reason
		{Rule{Packages: "k/*", Apart: "w"}, 1},
		{Rule{Packages: "k/*", Apart: "w", Shared: []string{"k/y"}}, 0},
		{Rule{Packages: "k/...", Only: []string{}, Why: "w"}, 0},
		{Rule{Packages: "nothing"}, 1},
	} {
		if got := Violations(c.rule, all); len(got) != c.want {
			t.Errorf("%+v: %q, want %d", c.rule, got, c.want)
		}
	}
	if matches("oci/...", "ocify") || !matches("oci/...", "oci/sign") || matches("a/*", "a/b/c") || matches("a/*", "a") {
		t.Error("patterns match the wrong packages")
	}
}

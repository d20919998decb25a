// SPDX-License-Identifier: Apache-2.0

// Package machine compiles the settings of a node beside conf: the arguments of its
// kernel, its network, the authorities it trusts.
//
// They are the same on every node until an override says otherwise, just as the
// modules of conf are. Values are checked here and read nowhere else: files of
// certificates are named by the site and arrive as their text. Addresses follow
// systemd.network(5), kernel arguments bootparam(7).
package machine

import (
	"cmp"
	"crypto/x509"
	"encoding/pem"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/caisson-os/caisson/internal/plain"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/rules"
	"github.com/caisson-os/caisson/spec/site/report"
	"github.com/caisson-os/caisson/spec/site/shape"
	"github.com/caisson-os/caisson/spec/site/tree"
)

// Values are the settings themselves: what an override may change.
type Values struct {
	Kernel  argsDoc       `site:"kernel" doc:"arguments after those of layer.kernel"`
	Network spec.Network  `site:"network" doc:"laid over the site's network"`
	Agent   agentDoc      `site:"agent" doc:"how the agent of the node works"`
	CAs     []shape.Block `site:"cas" doc:"certificates the node trusts: PEM, or files of it"`
}

type argsDoc struct {
	Args []shape.Text `site:"args"`
}

// Settings holds the compiled [Values].
type Settings struct {
	Args    []string
	Network spec.Network
	CAs     []string
	Agent   *spec.Agent // nil when nothing is said of it
}

var (
	// A blank or a quote elsewhere would change where the arguments end.
	kernelArg = regexp.MustCompile(`^[!#-~]+$|^[!#-<>-~]+="[ !#-~]*"$`)
	// seconds, see bootagent/boot/identity and bootagent/tell/events
	ownArg = regexp.MustCompile(`^caisson\.((watchdog|deadline|patience)=[0-9]{1,5}|decisions)$`)
)

// Compile checks the settings of one target.
func Compile(c *shape.Checker, v *tree.Value) (m Settings) {
	d := shape.Read[Values](c, v)
	c.In("kernel", func() { m.Args = KernelArgs(c, d.Kernel.Args) })
	m.Network = d.Network
	c.In("network", func() { checkNetwork(c, v.Get("network"), &m.Network) })
	c.In("agent", func() { m.Agent = compileAgent(c, v.Get("agent"), d.Agent) })
	m.CAs = plain.Each(d.CAs, func(t shape.Block) string { return t.S })
	return m
}

// KernelArgs checks arguments that are given to a kernel.
func KernelArgs(c *shape.Checker, args []shape.Text) []string {
	var out []string
	for _, a := range args {
		switch {
		case !kernelArg.MatchString(a.S):
			c.Errorf(a.At, "kernel-arg", `one argument an entry; a value with blanks stands in quotes, as in NAME="A B"`,
				"%q is not one kernel argument", a.S)
		case ownArg.MatchString(a.S):
			out = append(out, a.S)
		case strings.HasPrefix(a.S, "caisson."):
			c.Errorf(a.At, "kernel-arg", "caisson.watchdog=, caisson.deadline= and caisson.patience=SECONDS may be given, and caisson.decisions",
				"%s is set by caisson", a.S)
		case strings.HasPrefix(a.S, "init=") || strings.HasPrefix(a.S, "rdinit=") || strings.HasPrefix(a.S, "root="):
			c.Errorf(a.At, "kernel-arg", "", "%s would keep the agent from starting the node", a.S)
		default:
			out = append(out, a.S)
		}
	}
	return out
}

// CertificateProblem returns what keeps a text from being certificates, or "".
func CertificateProblem(text string) string {
	rest := []byte(text)
	n := 0
	for {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		n++
		if block.Type != "CERTIFICATE" {
			return "a PEM block of type " + block.Type + " where certificates belong"
		}
		if _, err := x509.ParseCertificate(block.Bytes); err != nil {
			return "a certificate that cannot be read: " + err.Error()
		}
	}
	if n == 0 {
		return "it has no PEM certificate"
	}
	return ""
}

// maxBond is how many members the bound of minLinks is taken from, where a match finds
// them.
const maxBond = 32

// BootNetwork checks what the loaders read of the network, rows that v says, and gives
// their values their one spelling.
func BootNetwork(c *shape.Checker, v *tree.Value, rows []spec.BootNetwork) []spec.BootNetwork {
	for i := range rows {
		c.In(shape.Nth(i), func() { checkRow(c, v.List[i], &rows[i]) })
	}
	return rows
}

func checkRow(c *shape.Checker, v *tree.Value, out *spec.BootNetwork) {
	checkMatch(c, v.Get("match"), &out.Match)
	mtu(c, v, out.MTU)
	out.DHCP = unless("no", out.DHCP)
	addresses(c, v, out.Addresses)
	gateway(c, v, out.Gateway)
	out.DNS = resolvers(c, v.Get("dns"), out.DNS)
	routes(c, v, out.Routes)
	if at := c.At(v, "vlan"); at != (report.Pos{}) && (out.VLAN < 1 || out.VLAN > 4094) {
		c.Errorf(at, "range", "", "the id of a VLAN is between 1 and 4094, not %d", out.VLAN)
	}
	if b := out.Bond; b != nil {
		b.LACPRate = unless("slow", b.LACPRate)
		checkMode(c, v.Get("bond"), b.Mode, &b.MinLinks, maxBond)
	}
	c.Refuse(len(out.Addresses) == 0 && out.DHCP == "", c.At(v), "conflict", "write dhcp: ipv4", "nothing gives the loader an address")
	checkRouters(c, v, spec.Interface{DHCP: out.DHCP, Addresses: out.Addresses, Gateway: out.Gateway, Routes: out.Routes})
}

func checkMatch(c *shape.Checker, v *tree.Value, m *spec.BootMatch) {
	var macs []string
	for i, word := range m.MACs {
		if a := mac(c, c.Nth(v.Get("macs"), i), word); a != "" {
			macs = append(macs, a)
		}
	}
	m.MACs = macs
	for i, word := range m.UUIDs {
		m.UUIDs[i] = strings.ToLower(word)
		c.Refuse(!uuidText.MatchString(m.UUIDs[i]), c.Nth(v.Get("uuids"), i), "uuid", "'dmidecode -s system-uuid' prints it", "%q is not a UUID",
			word)
	}
	if m.Driver != "" {
		c.Valid(c.At(v, "driver"), rules.NICMatch(spec.NICMatch{Driver: m.Driver}))
	}
	if m.PCI != "" {
		c.Valid(c.At(v, "pci"), rules.NICMatch(spec.NICMatch{PCI: m.PCI}))
	}
	c.Refuse(len(m.MACs)+len(m.UUIDs) == 0 && m.Driver == "" && m.PCI == "", c.At(v), "required", "{driver: NAME}, or macs, uuids or pci",
		"a match says which cards are meant")
}

type agentDoc struct {
	Poll    shape.Duration `site:"poll" doc:"time between questions to the registry; 5m when absent"`
	Report  *reportDoc     `site:"report" doc:"where the node's reports go"`
	Metrics *spec.Metrics  `site:"metrics" doc:"where the node's metrics can be read"`
	Policy  policyDoc      `site:"policy" doc:"what the agent does about a setting that somebody has changed on the node, by kind"`

	Credentials *spec.Credentials `site:"credentials" doc:"secrets by which the agent logs in, in place of those of the installation"`
}

// usualInterval is between two reports to a service: a fleet of ten thousand sends some
// thirty a second.
const usualInterval = 5 * time.Minute

// reportDoc has the name of its key in the schema.
type reportDoc spec.Reporting

// compileAgent returns nil where nothing is said.
func compileAgent(c *shape.Checker, v *tree.Value, d agentDoc) *spec.Agent {
	a := spec.Agent{Poll: int64(d.Poll.D / time.Second), Report: (*spec.Reporting)(d.Report), Metrics: d.Metrics}
	if d.Poll.Set() {
		c.Valid(d.Poll.At, rules.Poll(a.Poll))
	}
	if c.At(v, "report") == (report.Pos{}) {
		a.Report = nil
	} else {
		c.In("report", func() { checkReport(c, v.Get("report"), a.Report) })
	}
	if c.At(v, "metrics") == (report.Pos{}) {
		a.Metrics = nil
	} else {
		c.In("metrics", func() { c.ValidIn(c.At(v, "metrics"), v.Get("metrics"), rules.Metrics(*a.Metrics)) })
	}
	c.In("policy", func() { a.Enforce = compileEnforce(c, d.Policy) })
	if d.Credentials != nil {
		c.In("credentials", func() { a.Credentials = checkCredentials(c, v.Get("credentials"), d.Credentials, a.Report != nil) })
	}
	if reflect.ValueOf(a).IsZero() {
		return nil
	}
	return &a
}

// checkCredentials does not know which secrets there are: package module does. It returns nil
// where none is named.
func checkCredentials(c *shape.Checker, v *tree.Value, d *spec.Credentials, reports bool) *spec.Credentials {
	registry, own := c.At(v, "registry"), c.At(v, "report")
	if registry == (report.Pos{}) && own == (report.Pos{}) {
		return nil
	}
	if registry != (report.Pos{}) {
		c.Valid(registry, rules.Secret(d.Registry))
	}
	if own != (report.Pos{}) {
		c.Valid(own, rules.Secret(d.Report))
		c.Refuse(!reports, own, "no-report", "machine.agent.report says where to: name its url or registry, or take report out of credentials",
			"nothing uses it: the node sends no reports")
	}
	return d
}

func checkReport(c *shape.Checker, v *tree.Value, r *spec.Reporting) {
	if c.At(v, "interval") == (report.Pos{}) {
		r.Interval = int64(usualInterval / time.Second)
		if c.At(v, "registry") != (report.Pos{}) {
			r.Interval = int64(rules.LeastToStore / time.Second)
		}
	}
	r.URL = strings.TrimRight(r.URL, "/")
	if c.ValidIn(c.At(v), v, rules.Reporting(*r)) && strings.HasPrefix(r.URL, "http:") {
		c.Warnf(c.At(v, "url"), "plain-http", "use https", "reports are sent unencrypted: signed, but everyone on the way can read them")
	}
}

// policyDoc is a word for each kind, or a map of words by key.
type policyDoc []shape.Entry[kindPolicyDoc]

// kindPolicyDoc is the policy of a kind: of all of it, or of some of its keys.
type kindPolicyDoc []shape.Entry[ruleDoc]

// ruleDoc is a word, or a map that says more.
type ruleDoc struct {
	Policy     shape.Text   `site:"policy,required"`
	OnConflict *spec.Budget `site:"onConflict" doc:"when the agent stops correcting a setting"`
	V          *tree.Value
}

// sysctlPolicyDoc is that of kernel parameters, which can be protected, too.
type sysctlPolicyDoc struct{ kindPolicyDoc }

// others stands for the keys of a kind that are not named.
const others = "*"

// policyFields are the kinds that have a policy.
func policyFields() (out []shape.Field) {
	items := reflect.TypeFor[spec.Items]()
	for i := range items.NumField() {
		switch kind, _, _ := strings.Cut(items.Field(i).Tag.Get("json"), ","); {
		case slices.Contains(spec.Policies(kind), spec.PolicyProtect):
			out = append(out, shape.Field{Name: kind, Type: reflect.TypeFor[sysctlPolicyDoc](),
				Doc: "enforce, report or protect; or one of them by key, with * for all other keys"})
		case spec.Policies(kind) != nil:
			out = append(out, shape.Field{Name: kind, Type: reflect.TypeFor[kindPolicyDoc](),
				Doc: "enforce or report; or one of them by key, with * for all other keys"})
		}
	}
	slices.SortFunc(out, func(a, b shape.Field) int { return cmp.Compare(a.Name, b.Name) })
	return out
}

// Decode reads the kinds.
func (d *policyDoc) Decode(c *shape.Checker, v *tree.Value) {
	for _, f := range v.Fields {
		if f.Key == "exec" {
			c.Errorf(f.At, "policy", "rerun_policy and the intervals of a script say when it runs",
				"scripts have no policy: what they did cannot be looked at")
			v = v.Without(f.Key)
		}
	}
	given := c.DecodeFields(v, policyFields())
	for _, f := range v.Fields {
		var kind kindPolicyDoc
		switch k := given[f.Key].(type) {
		case *kindPolicyDoc:
			kind = *k
		case *sysctlPolicyDoc:
			kind = k.kindPolicyDoc
		default:
			continue // null, or wrong and said
		}
		*d = append(*d, shape.Entry[kindPolicyDoc]{Key: shape.Text{S: f.Key, At: f.At}, Val: kind})
	}
}

// Schema returns the schema of the kinds.
func (*policyDoc) Schema(g *shape.Generator) any { return g.Fields("policy", policyFields()) }

// Decode reads one kind.
func (k *kindPolicyDoc) Decode(c *shape.Checker, v *tree.Value) {
	if v.Kind == tree.Mapping {
		var m shape.Map[ruleDoc]
		m.Decode(c, v)
		*k = kindPolicyDoc(m)
		return
	}
	var word shape.Text
	if word.Decode(c, v); word.Set() {
		*k = kindPolicyDoc{{Key: shape.Text{S: others, At: v.At}, Val: ruleDoc{Policy: word}}}
	}
}

// Decode reads a word, or what is written out.
func (r *ruleDoc) Decode(c *shape.Checker, v *tree.Value) {
	if v.Kind != tree.Mapping {
		r.Policy.Decode(c, v)
		return
	}
	type written ruleDoc // which has no Decode
	c.Decode(v, (*written)(r))
}

// Schema returns the schema of one kind.
func (*kindPolicyDoc) Schema(g *shape.Generator) any { return wordOrWords(g, spec.EnforceOrReport) }

// Schema returns that of kernel parameters.
func (*sysctlPolicyDoc) Schema(g *shape.Generator) any {
	return wordOrWords(g, spec.Policies("sysctl"))
}

func wordOrWords(g *shape.Generator, policies []spec.Policy) any {
	word := map[string]any{"enum": policies}
	rule := map[string]any{"type": "object", "required": []string{"policy"}, "additionalProperties": false,
		"properties": map[string]any{"policy": word, "onConflict": g.Of(reflect.TypeFor[spec.Budget](), false)}}
	return map[string]any{"anyOf": []any{word, map[string]any{"type": "object",
		"additionalProperties": map[string]any{"anyOf": []any{word, rule}}}}}
}

// Normal gives the keys of policies their one spelling, so that two spellings of a key
// meet when maps are merged.
func Normal(c *shape.Checker, v *tree.Value) *tree.Value {
	agent := v.Get("agent")
	policy := agent.Get("policy")
	if policy == nil || policy.Kind != tree.Mapping {
		return v
	}
	c.Within([]string{"agent", "policy"}, func() {
		for _, f := range policy.Fields {
			if f.Val.Kind != tree.Mapping {
				continue
			}
			c.In(f.Key, func() {
				policy = policy.With(f.Key, c.Rename(f.Val, func(key string) string {
					if key == others {
						return key
					}
					return rules.PolicyName(f.Key, rules.PolicyKey(f.Key, key))
				}))
			})
		}
	})
	return v.With("agent", agent.With("policy", policy))
}

// compileEnforce checks the policies of all kinds.
func compileEnforce(c *shape.Checker, d policyDoc) (out []spec.Enforcement) {
	for _, kind := range d {
		c.In(kind.Key.S, func() { out = append(out, compilePolicy(c, kind)...) })
	}
	slices.SortFunc(out, func(x, y spec.Enforcement) int { return cmp.Or(cmp.Compare(x.Item, y.Item), cmp.Compare(x.Key, y.Key)) })
	return out
}

func compilePolicy(c *shape.Checker, kind shape.Entry[kindPolicyDoc]) (out []spec.Enforcement) {
	for _, e := range kind.Val {
		row := spec.Enforcement{Item: kind.Key.S, Policy: spec.Policy(e.Val.Policy.S)}
		if e.Key.S != others {
			row.Key = rules.PolicyKey(row.Item, e.Key.S)
			c.Refuse(row.Key == "", e.Key.At, "policy-key", "write * for all keys that are not named", "the key is empty")
		}
		if e.Val.Policy.Set() {
			c.ValidFields(e.Key.At, map[string]report.Pos{"policy": e.Val.Policy.At}, rules.Enforcement(row))
		}
		if gives := e.Val.V.Get("onConflict"); e.Val.OnConflict != nil {
			c.Refuse(row.Policy == spec.PolicyReport, c.At(gives), "policy", "policy: enforce sets it again",
				"what is only reported is never set again")
			c.In(e.Key.S, func() { row.Budget = c.Budget(gives, e.Val.OnConflict) })
		}
		out = append(out, row)
	}
	return out
}

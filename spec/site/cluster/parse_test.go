// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/caisson-os/caisson/spec/site"
	"github.com/caisson-os/caisson/spec/site/calendar"
	"github.com/caisson-os/caisson/spec/site/report"
	"github.com/caisson-os/caisson/spec/site/tree"
)

// objectsOf makes objects of YAML documents, as kubectl would but for the schema.
func objectsOf(t *testing.T, text string) []Object {
	t.Helper()
	var out []Object
	d := yaml.NewDecoder(strings.NewReader(text))
	for {
		var v any
		if err := d.Decode(&v); err != nil {
			return out
		}
		data, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		list, err := List(fmt.Appendf(nil, `{"items": [%s]}`, data))
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, list...)
	}
}

// none is a host without files that notes what is asked for.
type none struct{ asked []string }

func (n *none) Open(name string) (fs.File, error) {
	n.asked = append(n.asked, name)
	return nil, fs.ErrNotExist
}

const head = "apiVersion: caisson.dev/v1alpha1\n"

func siteWith(rest string) string {
	return head + "kind: Site\nmetadata: {name: metal-a, namespace: metal-a, uid: x, labels: {a: b}}\nstatus: {conditions: []}\n" + rest
}

var noon = time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)

// A namespace is a site: what the cluster adds to objects is not read, and what is wrong has
// its place in the object that it is wrong in.
func TestParse(t *testing.T) {
	host := &none{}
	s, problems := Reader{Files: host}.Parse(Day(noon), ".", nil, objectsOf(t, siteWith("registry: registry.example.org/metal-a\nnodes: [{name: n1, labels: {role: db}}]\nconf: {sysctl: {vm.swappiness: \"10\"}}\n")+
		"---\n"+head+"kind: NodeSet\nmetadata: {name: storage}\nspec: {match: {labels: {role: storage}}}\n"))
	if s == nil || s.Name() != "metal-a" || len(s.Nodes()) != 1 {
		t.Fatalf("%v", problems)
	}
	if len(problems) != 1 || problems[0].Kind != "NodeSet" || problems[0].Name != "storage" || problems[0].Severity != report.Warning {
		t.Errorf("problems: %+v", problems)
	}
	if len(host.asked) != 0 {
		t.Errorf("objects had %q opened", host.asked)
	}

	_, problems = Reader{Files: host}.Parse(noon, ".", nil, objectsOf(t, siteWith("conf: {sysctl: {\"kernel.no such\": \"1\"}, files: {motd: {path: /tmp/x, content: \"a\\u007fb\"}}}\n")))
	var got []string
	for _, p := range problems {
		if p.Severity == report.Error {
			got = append(got, p.Kind+"/"+p.Name+" "+p.Path)
		}
	}
	if want := "Site/metal-a .conf.files.motd.path"; len(got) == 0 || !strings.Contains(strings.Join(got, "\n"), want) {
		t.Errorf("problems at %q, want %q: %+v", got, want, problems)
	}
}

// A namespace has one Site.
func TestOneSite(t *testing.T) {
	one := siteWith("nodes: [{name: n1}]\n")
	other := strings.Replace(one, "name: metal-a,", "name: metal-b,", 1)
	for name, text := range map[string]string{"second-site": one + "---\n" + other, "no-site": head + "kind: NodeSet\nmetadata: {name: storage}\nspec: {}\n"} {
		s, problems := Reader{Files: &none{}}.Parse(noon, ".", nil, objectsOf(t, text))
		if s != nil || len(problems) != 1 || problems[0].Rule != name {
			t.Errorf("%s: %v, %+v", name, s, problems)
		}
	}
}

// refusals has for each field of [Refused] an object that has it.
var refusals = map[string]string{
	"include":                       siteWith("include: [/etc/shadow]\n"),
	"values":                        siteWith("values: /etc/shadow\n"),
	"inventory":                     siteWith("inventory: [/etc/shadow]\n"),
	"registry":                      siteWith("registry: oci:/etc/cron.d\n"),
	"layer/base/tar":                siteWith("layer: {base: {tar: /etc/shadow}}\n"),
	"layer/base/debian/keyring":     siteWith("layer: {base: {debian: {suite: trixie, keyring: /etc/shadow}}}\n"),
	"trust/keys":                    siteWith("trust: {keys: {operator: mine.pub}}\n"),
	"secrets/*/file":                siteWith("secrets: {db: {file: /etc/shadow}}\n"),
	"secrets/*/command":             siteWith("secrets: {db: {command: [cat, /etc/shadow]}}\n"),
	"conf/apparmor/profiles/*/file": siteWith("conf: {apparmor: {profiles: {x: {file: /etc/shadow}}}}\n"),
	"conf/exec/*/file":              siteWith("conf: {overrides: {divingbell_exec: {hosts: [{name: n1, conf: {exec: {x.sh: {file: /etc/shadow}}}}]}}}\n"),
	"conf/exec/*/revert_file":       siteWith("conf: {exec: {x.sh: {data: \"true\", revert_file: /etc/shadow}}}\n"),
	"conf/files/*/file":             head + "kind: NodeMaintenance\nmetadata: {name: x}\nspec: {operations: [{name: o, type: realtime, conf: {files: {x: {file: /etc/shadow}}}}]}\n",
	"conf/units/*/file":             siteWith("conf: {units: {x.service: {file: /etc/shadow}}}\n"),
	"cas/*":                         siteWith("machine: {overrides: {labels: [{label: {key: a, values: [b]}, conf: {cas: [/etc/shadow]}}]}}\n"),
	"git/allowedSigners":            head + "kind: NodeService\nmetadata: {name: x}\nspec: {git: {url: https://git.example.org/x, branch: main, allowedSigners: /etc/shadow}, directories: [{from: ., to: /srv/x}]}\n",
	"git/url":                       head + "kind: NodeService\nmetadata: {name: x}\nspec: {git: {url: file:///srv/secrets, branch: main}, directories: [{from: ., to: /srv/x}]}\n",
}

// Whatever reads, writes or runs something where the site is published is refused in an
// object, and nothing is opened before.
// The keys of objects are those beside them, as many as there are in a row; of a site in files
// they are those that it names.
func TestKeysBesideObjects(t *testing.T) {
	fsys := fstest.MapFS{}
	for _, name := range []string{"operator", "operator2", "operator4", "root", "rescue"} {
		fsys["ns/keys/"+name+".pub"] = &fstest.MapFile{}
	}
	s, problems := Reader{Files: fsys, Keys: KeysBeside(fsys, "ns")}.Parse(noon, "ns", nil, objectsOf(t, siteWith("nodes: [{name: n1}]\ntrust: {threshold: 2}\n")))
	if s == nil {
		t.Fatal(problems)
	}
	got := s.Trust()
	if !slices.Equal(got.Operator, []string{"ns/keys/operator.pub", "ns/keys/operator2.pub"}) || !got.Beside || got.Chain != "ns/caisson.keys" ||
		len(got.Root) != 1 || len(got.Rescue) != 1 || got.Epoch != nil || !slices.Equal(got.Release, []string{"ns/keys/release.pub"}) {
		t.Errorf("%+v", got)
	}
}

func TestRefused(t *testing.T) {
	for _, r := range Refused {
		text, ok := refusals[r.Path]
		if !ok {
			t.Errorf("%s has no object in this test", r.Path)
			continue
		}
		host := &none{}
		s, problems := Reader{Files: host}.Parse(noon, ".", nil, objectsOf(t, text))
		found := false
		for _, p := range problems {
			found = found || p.Rule == "refused" && p.Message == r.String() && p.Hint == r.Hint && strings.HasPrefix(p.Path, ".")
		}
		if s != nil || !found || len(host.asked) > 0 {
			t.Errorf("%s: found %v, opened %q: %+v", r.Path, found, host.asked, problems)
		}
	}
}

// What is not in the table names no file: every field of every shape is tried with a name
// that nobody has, and nothing asks for it.
func TestNothingElseIsOpened(t *testing.T) {
	const bait = "/var/lib/bait"
	tried := 0
	for _, k := range Kinds() {
		if !k.Doc {
			continue
		}
		for _, content := range baits(k.schema, bait, 0) {
			doc, ok := content.(map[string]any)
			if !ok {
				continue
			}
			doc["apiVersion"], doc["kind"], doc["metadata"] = Group+"/"+Version, k.Kind, map[string]any{"name": "x"}
			host := &none{}
			Reader{Files: host}.Parse(noon, ".", nil, []Object{ObjectOf(doc)})
			for _, name := range host.asked {
				if name != "services.lock" {
					t.Errorf("%s: %s was opened for %v", k.Kind, name, content)
				}
			}
			tried++
		}
	}
	if tried < 500 {
		t.Errorf("only %d objects were tried", tried)
	}
}

// baits returns values of a schema, each with the bait in the place of one text.
func baits(s node, bait string, depth int) (out []any) {
	if list, ok := s[forms].([]any); ok {
		for _, form := range list {
			out = append(out, baits(form.(node), bait, depth)...)
		}
		return out
	}
	switch {
	case depth > 14:
	case s["type"] == "string" && s["enum"] == nil:
		return []any{bait}
	case s["type"] == "array":
		for _, v := range baits(s["items"].(node), bait, depth+1) {
			out = append(out, []any{v})
		}
	case s["type"] == "object":
		if each, ok := s["additionalProperties"].(node); ok {
			for _, v := range baits(each, bait, depth+1) {
				out = append(out, map[string]any{"x.sh": v})
			}
		}
		given, _ := s["properties"].(node)
		for name, p := range given {
			for _, v := range baits(p.(node), bait, depth+1) {
				out = append(out, map[string]any{name: v})
			}
		}
	}
	return out
}

// What kubectl would send as another value is said before, with what to write instead.
func TestCheckSaysQuoteIt(t *testing.T) {
	for text, hint := range map[string]string{
		"conf: {files: {motd: {content: x, mode: 0640}}}":                                               `quote it: "0640"`,
		"conf: {files: {motd: {content: x, mode: \"0640\"}}}":                                           "",
		"conf: {sysctl: {vm.swappiness: 10}}":                                                           `quote it: "10"`,
		"conf: {sysctl: {vm.swappiness: 1e6}}":                                                          `quote it: "1e6"`,
		"conf: {sysctl: {a.b: on}}":                                                                     `quote it: "on"`,
		"conf: {sysctl: {a.b: 0x10}}":                                                                   `quote it: "0x10"`,
		"conf: {sysctl: {a.b: 1_000}}":                                                                  `quote it: "1_000"`,
		"conf: {sysctl: {a.b: .5}}":                                                                     `quote it: ".5"`,
		"conf: {sysctl: {a.b: 1 2 3}}":                                                                  "",
		"conf: {sysctl: {a.b: 22:00}}":                                                                  "",
		"layer: {base: {oci: x}, stateDisk: {create: on, atLeast: 020}}":                                `quote it: "020"`,
		"layer: {base: {oci: x}, stateDisk: {create: \"on\", atLeast: 20}}":                             "write true, without quotes",
		"layer: {base: {oci: x}, stateDisk: {create: y}}":                                               "write true, without quotes",
		"layer: {base: {oci: x}, stateDisk: {create: yes, atLeast: \"20\"}}":                            "",
		"network: {interfaces: [{name: v, vlan: {id: 5, on: b}}]}":                                      `quote it: "on"`,
		"network: {interfaces: [{name: v, vlan: {id: 5, \"on\": b}}]}":                                  "",
		"conf: {sysctl: {010: \"1\"}}":                                                                  `quote it: "010"`,
		"conf: {apt: {packages: [{name: x, version: 1.0}]}}":                                            `quote it: "1.0"`,
		"conf: {apt: {packages: {base: [{name: x, version: 1.0-1}]}}}":                                  "",
		"machine: {agent: {policy: {sysctl: {a.b: {policy: enforce, onConflict: {corrections: 05}}}}}}": `quote it: "05"`,
	} {
		r := &report.Report{}
		Check(&report.Source{Name: "x", Data: []byte(siteWith(text + "\n"))}, r)
		got := ""
		for _, p := range r.Problems {
			got = p.Hint
		}
		if got != hint || len(r.Problems) > 1 {
			t.Errorf("%s: %q, want %q: %v", text, got, hint, r.Problems)
		}
	}
}

// Two documents that would be one object are said.
func TestCheckSaysOneName(t *testing.T) {
	r := &report.Report{}
	set := head + "kind: NodeSet\nmetadata: {name: a}\nspec: {}\n---\n"
	if Check(&report.Source{Name: "x", Data: []byte(set + set)}, r); len(r.Problems) != 1 || r.Problems[0].Rule != "duplicate-name" {
		t.Errorf("%v", r.Problems)
	}
}

// A number that stands for a text in an object is refused: which text it was nobody knows.
func TestNumbersInObjects(t *testing.T) {
	s, problems := Reader{Files: &none{}}.Parse(noon, ".", nil, objectsOf(t, siteWith("conf: {files: {motd: {content: x, mode: 0640}}}\n")))
	if s != nil || len(problems) != 1 || problems[0].Path != ".conf.files.motd.mode" || problems[0].Rule != "quoted" {
		t.Errorf("%v %+v", s, problems)
	}
}

// FuzzTexts: whatever a text is, the site has it as the object has; a NUL character is refused.
func FuzzTexts(f *testing.F) {
	for _, text := range []string{"", "a", "\x00", "\u2028", "\u0085", "\U0001f600", "\\\"", "\ufeff", "a\r\nb", "\U000e0001", "on", "0640", "~", "null"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		text = strings.ToValidUTF8(text, "?")
		p := prepare(ObjectOf(map[string]any{"kind": "Site", "metadata": map[string]any{"name": "n"}, "spec": map[string]any{text: text}}), "Site.n", MaxValues)
		if strings.ContainsRune(text, 0) {
			if p.doc != nil || len(p.problems) != 1 || p.problems[0].Rule != "text" {
				t.Errorf("%q: %v", text, p.problems)
			}
			return
		}
		if v := p.doc.Get("spec").Get(text); v == nil || v.Kind != tree.Scalar || v.Plain || v.Text != text {
			t.Errorf("%q is %+v", text, v)
		}
	})
}

// An inventory takes the Nodes of the cluster, and a file beside the objects may, too; who
// reads no cluster says so.
func TestInventoryOfTheCluster(t *testing.T) {
	asked := 0
	reader := Reader{Files: &none{}, Nodes: func() ([]Member, error) {
		asked++
		return []Member{{Name: "n1", Labels: map[string]string{"node-restriction.kubernetes.io/role": "db"}}, {Name: "n2", UUID: "6f1c2a4e-58a1-4c3b-9b61-0d5f3c2b7a11"}}, nil
	}}
	const file = head + "kind: Site\nmetadata: {name: metal-a}\n"
	text := siteWith("inventory: [{cluster: {}}]\nnodes: [{name: n3, match: {uuids: [6f1c2a4e-58a1-4c3b-9b61-0d5f3c2b7a11]}}]\n")
	s, problems := reader.Parse(noon, ".", nil, objectsOf(t, text))
	if s == nil || len(s.Nodes()) != 2 || s.Fleet().Has("n2") || s.Fleet().WhyLeftOut("n2") == "" || asked != 1 {
		t.Fatalf("%+v, asked %d times", problems, asked)
	}
	if len(problems) != 1 || problems[0].Kind != Site || problems[0].Path != ".inventory[0].cluster" || problems[0].Severity != report.Warning || problems[0].Rule != "left-out" {
		t.Errorf("%+v", problems)
	}
	if _, problems = (Reader{Files: &none{}}).Parse(noon, ".", nil, objectsOf(t, text)); len(problems) != 1 || problems[0].Rule != "no-cluster" {
		t.Errorf("%+v", problems)
	}
	if s, problems = reader.Parse(noon, ".", nil, objectsOf(t, siteWith("nodes: [{name: n3}]\n"))); s == nil || asked != 1 {
		t.Errorf("Nodes were asked for %d times: %+v", asked, problems)
	}
	reader.Files = fstest.MapFS{"site.yaml": {Data: []byte(file + "inventory: [{cluster: {}}]\n")}}
	if s, problems = reader.Parse(noon, ".", []string{"site.yaml"}, nil); s == nil || !s.Fleet().Has("n1") {
		t.Errorf("a file: %+v", problems)
	}
	reader.Nodes = func() ([]Member, error) { return nil, errors.New("forbidden") }
	if s, problems = reader.Parse(noon, ".", nil, objectsOf(t, text)); s != nil || len(problems) != 1 || !strings.Contains(problems[0].Message, "forbidden") {
		t.Errorf("%+v", problems)
	}
}

// A secret is an entry of a Secret of the namespace.
func TestSecretRef(t *testing.T) {
	s, problems := Reader{Files: &none{}}.Parse(noon, ".", nil, objectsOf(t, siteWith("nodes: [{name: n1}]\nsecrets: {db: {secretRef: {name: db.prod, key: pass_word}}}\nconf: {files: {/etc/db: {secret: db}}, exec: {x.sh: {data: \"true\", env: {TOKEN: {secret: db}, MODE: a}}}}\n")))
	if s == nil || len(s.Secrets()) != 1 || *s.Secrets()[0].Ref != (site.SecretRef{Name: "db.prod", Key: "pass_word"}) {
		t.Fatalf("%+v", problems)
	}
	if needs, err := s.SecretsOf("n1"); err != nil || len(needs) != 1 {
		t.Errorf("the node needs %v: %v", needs, err)
	}
	for _, wrong := range []string{"{name: --kubeconfig=x, key: k}", "{name: Db, key: k}", "{name: db, key: a/b}", "{name: db}", "{key: k}", "{name: a..b, key: k}", "{name: db, key: ..}"} {
		if s, _ := (Reader{Files: &none{}}).Parse(noon, ".", nil, objectsOf(t, siteWith("secrets: {db: {secretRef: "+wrong+"}}\n"))); s != nil {
			t.Errorf("%s is a Secret", wrong)
		}
	}
	file := fstest.MapFS{"site.yaml": {Data: []byte(head + "kind: Site\nmetadata: {name: metal-a}\nsecrets: {db: {secretRef: {name: db, key: k}}}\n")}}
	if s, r := site.Parse(file, "site.yaml"); s != nil || len(r.Problems) != 1 || r.Problems[0].Rule != "no-cluster" {
		t.Errorf("a file that is read from no cluster: %+v", r.Problems)
	}
	if s, problems := (Reader{Files: file}).Parse(noon, ".", []string{"site.yaml"}, nil); s == nil {
		t.Errorf("a file that is read with one: %+v", problems)
	}
}

func TestSecretValue(t *testing.T) {
	secret := []byte(`{"kind": "Secret", "data": {"password": "aHVudGVyMg=="}, "stringData": {"other": "x"}}`)
	if value, err := SecretValue(secret, "password"); err != nil || string(value) != "hunter2" {
		t.Errorf("%q %v", value, err)
	}
	for key, data := range map[string]string{"other": string(secret), "password": `{"kind": "ConfigMap", "data": {"password": "aHVudGVyMg=="}}`, "x": `{"kind": "Secret", "data": {"x": "hunter2"}}`, "y": "hunter2"} {
		if value, err := SecretValue([]byte(data), key); err == nil || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: %q %v", data, value, err)
		}
	}
}

// What is known of an object is used while it is that object, and says the same.
func TestKnown(t *testing.T) {
	known := &Known{}
	reader := Reader{Files: &none{}, Known: known}
	set := "---\n" + head + "kind: NodeSet\nmetadata: {name: db}\nspec: {match: {labels: {role: db}}}\n"
	objects := objectsOf(t, siteWith("nodes: [{name: n1}]\n")+set)
	_, want := Reader{Files: &none{}}.Parse(noon, ".", nil, objects)
	for range 2 {
		if s, got := reader.Parse(noon, ".", nil, objects); s == nil || fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%+v, want %+v", got, want)
		}
	}
	before := known.dir["."]["NodeSet.db"]
	wrong := slices.Clone(objects)
	wrong[0] = objectsOf(t, siteWith("nodes: [{name: n1}]\nconf: {sysctl: {vm.swappiness: 10}}\n"))[0]
	for range 2 {
		if s, got := reader.Parse(noon, ".", nil, wrong); s != nil || len(got) == 0 || got[0].Rule != "quoted" || got[0].Path != ".conf.sysctl['vm.swappiness']" {
			t.Errorf("%v %+v", s, got)
		}
	}
	if known.dir["."]["NodeSet.db"] != before {
		t.Error("an object that is the same was taken apart again")
	}
	if _, problems := reader.Parse(noon, ".", nil, objects[1:]); len(problems) != 1 || len(known.dir["."]) != 1 {
		t.Errorf("%d are known of one: %+v", len(known.dir["."]), problems)
	}
	twin := slices.Clone(objects) // another object of the same name and content
	twin[1] = objectsOf(t, set)[0]
	if _, got := reader.Parse(noon, ".", nil, twin); fmt.Sprint(got) != fmt.Sprint(want) || known.dir["."]["NodeSet.db"] == before {
		t.Errorf("%+v", got)
	}
}

// TestBoundsOfObjects: what an object costs is bounded by its values and depth, what a namespace
// costs by all of them together, and what is remembered by those of all namespaces; what is
// refused names the object, and the next look finds it mended.
func TestBoundsOfObjects(t *testing.T) {
	window := func(name string, rules int) Object {
		opens := make([]any, rules)
		for i := range opens {
			opens[i] = map[string]any{"weekly": []any{"sat"}, "at": "22:00"}
		}
		return ObjectOf(map[string]any{"apiVersion": "caisson.dev/v1alpha1", "kind": "MaintenanceWindow", "metadata": map[string]any{"name": name},
			"spec": map[string]any{"timeZone": "UTC", "duration": "4h", "opens": opens}})
	}
	deep := any("x")
	for range 5000 {
		deep = []any{deep}
	}
	nested := ObjectOf(map[string]any{"apiVersion": "caisson.dev/v1alpha1", "kind": "NodeSet", "metadata": map[string]any{"name": "deep"}, "spec": deep})
	head := objectsOf(t, siteWith("nodes: [{name: n1}]\n"))
	known := &Known{}
	parse := func(dir string, more ...Object) []Problem {
		t.Helper()
		_, problems := Reader{Files: fstest.MapFS{}, Known: known}.Parse(noon, dir, nil, append(slices.Clone(head), more...))
		return problems
	}
	refused := func(problems []Problem, rule string) (names []string) {
		for _, p := range problems {
			if p.Rule == rule {
				names = append(names, p.Kind+"/"+p.Name)
			}
		}
		return names
	}
	if got := refused(parse("a", window("large", MaxValues/6), nested), "too-large"); !slices.Equal(got, []string{"MaintenanceWindow/large", "NodeSet/deep"}) {
		t.Errorf("refused: %q", got)
	}
	if got := refused(parse("a", window("many", calendar.MaxRules+1)), "range"); !slices.Equal(got, []string{"MaintenanceWindow/many"}) {
		t.Errorf("refused: %q", got)
	}
	parse("a", window("half", MaxTogether/2/7))
	// Three are too many together, and two of them are not.
	var all []Object
	for _, name := range []string{"a", "b", "c"} {
		all = append(all, window(name, MaxTogether/2/7))
	}
	if got := refused(parse("b", all...), "too-large"); !slices.Equal(got, []string{"MaintenanceWindow/c"}) {
		t.Errorf("refused: %q", got)
	}
	if got := refused(parse("b", all[1:]...), "too-large"); len(got) > 0 {
		t.Errorf("refused: %q", got)
	}
	if known.dir["a"] != nil || values(known.dir["b"]) > MaxTogether {
		t.Errorf("%d namespaces are remembered, of this one %d values", len(known.dir), values(known.dir["b"]))
	}
}

// BenchmarkParse: a namespace of many objects, as each look at it and each kubectl apply reads it.
func BenchmarkParse(b *testing.B) {
	for _, n := range []int{1000, 5000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			objects := []Object{{Kind: Site, Name: "metal-a", Content: map[string]any{"apiVersion": "caisson.dev/v1alpha1", "kind": Site, "metadata": map[string]any{"name": "metal-a"}, "nodes": []any{map[string]any{"name": "n1"}}}}}
			for i := range n {
				objects = append(objects, Object{Kind: "NodeSet", Name: fmt.Sprintf("s%d", i), Content: map[string]any{"apiVersion": "caisson.dev/v1alpha1", "kind": "NodeSet", "metadata": map[string]any{"name": fmt.Sprintf("s%d", i)},
					"spec": map[string]any{"match": map[string]any{"labels": map[string]any{"rack": fmt.Sprintf("r%d", i)}}}}})
			}
			for name, reader := range map[string]Reader{"anew": {Files: &none{}}, "known": {Files: &none{}, Known: &Known{}}} {
				b.Run(name, func(b *testing.B) {
					for b.Loop() {
						if s, problems := reader.Parse(noon, ".", nil, objects); s == nil {
							b.Fatal(problems)
						}
					}
				})
			}
		})
	}
}

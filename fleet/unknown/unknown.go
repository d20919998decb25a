// SPDX-License-Identifier: Apache-2.0

// Package unknown keeps a list of machines that asked a registry for an overlay and
// got none: new ones, replaced ones, those whose match in the site is wrong.
//
// It knows only what a machine asked for, tags of node, and from where: anybody can
// ask for anything, so the list is short, a help for people, and no program relies on it.
// What keeps it is a file beside the layout that is served. cmd/caisson keeps
// it, and fleet/server shows it.
package unknown

import (
	"cmp"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/internal/durable"
	"github.com/caisson-os/caisson/internal/fault"
	"github.com/caisson-os/caisson/internal/httpserver"
	"github.com/caisson-os/caisson/internal/plain"
)

// Machine is one that is not known.
type Machine struct {
	From  string    `json:"from"` // address
	Agent string    `json:"agent,omitempty"`
	Names []string  `json:"names"`
	MACs  []string  `json:"macs"`
	UUIDs []string  `json:"uuids"`
	First time.Time `json:"first"`
	Last  time.Time `json:"last"`
}

// Limits of the list: strangers fill it.
const (
	maxMachines = 256
	maxNames    = 8 // of one kind, of one machine
	maxFile     = 1 << 20
)

// program begins what the program caisson calls itself: who looks at a fleet is not a machine of it, and
// a relay asks for all that are behind it.
const program = "caisson/"

// settle is how long after a question the machine may still ask by another of its
// names and be known by that.
const settle = 3 * time.Second

// List is the list of a server. It may be used by several goroutines.
type List struct {
	file   string
	found  func(Machine) // gets each machine once
	settle time.Duration

	mu      sync.Mutex
	written time.Time
	asking  map[string]*Machine // by address and agent
	unknown map[string]*Machine // likewise; in the file
}

// Open opens the list in a file, which need not be there yet. Found is called once for
// each machine that turns out to be unknown.
func Open(file string, found func(Machine)) (*List, error) {
	l := &List{file: file, found: found, settle: settle, asking: map[string]*Machine{}}
	list, err := Read(file)
	l.unknown = plain.Map(list, func(m Machine) (string, *Machine) { return m.key(), &m })
	return l, err
}

// Make writes the list in a file again, or an empty one, so that a place that cannot have it is known
// before anybody asks.
func Make(file string) error {
	l, err := Open(file, nil)
	if err != nil {
		return err
	}
	return l.write()
}

// Name returns the file of the list of machines that asked for the layout in dir.
func Name(dir string) string { return filepath.Join(dir, ".unknown.json") }

// Read returns the machines in a file, the last ones first; none without the file.
func Read(file string) ([]Machine, error) {
	info, err := os.Stat(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err == nil && info.Size() > maxFile {
		err = fmt.Errorf("more than %d bytes", maxFile)
	}
	var list []Machine
	var data []byte
	if err == nil {
		data, err = os.ReadFile(file)
	}
	if err == nil {
		err = json.Unmarshal(data, &list)
	}
	if err != nil {
		return nil, fmt.Errorf("unknown machines: %s: %w", file, err)
	}
	sort(list)
	return Clean(list), nil
}

var macForm = regexp.MustCompile(`^[0-9a-f]{2}(:[0-9a-f]{2}){5}$`)

// Clean keeps of machines what a list takes note of, where it comes from elsewhere: words of it go into
// rows of a site, and into commands.
func Clean(list []Machine) []Machine {
	keep := func(names []string, form *regexp.Regexp) []string {
		names = append([]string{}, names[:min(len(names), maxNames)]...)
		return slices.DeleteFunc(names, func(name string) bool { return !form.MatchString(name) })
	}
	list = slices.Clone(list[:min(len(list), maxMachines)])
	for i := range list {
		m := &list[i]
		m.MACs, m.UUIDs, m.Names = keep(m.MACs, macForm), keep(m.UUIDs, uuidForm), keep(m.Names, tagForm)
	}
	return list
}

func sort(list []Machine) {
	slices.SortFunc(list, func(a, b Machine) int { return cmp.Or(b.Last.Compare(a.Last), cmp.Compare(a.key(), b.key())) })
}

func (m *Machine) key() string { return m.From + " " + m.Agent }

var uuidForm = regexp.MustCompile(`^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)

const tag = `[A-Za-z0-9_][A-Za-z0-9._-]{0,127}`

var (
	tagForm = regexp.MustCompile(`^` + tag + `$`)
	nodeTag = regexp.MustCompile(`/node/manifests/(` + tag + `)$`)
)

// Answered takes note of a request and its answer. The agent is what the machine calls
// itself, the path what it asked for.
func (l *List) Answered(from, agent, path string, found bool, at time.Time) error {
	part := nodeTag.FindStringSubmatch(path)
	if part == nil || strings.HasPrefix(agent, program) {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	m := &Machine{From: from, Agent: agent, First: at, Names: []string{}, MACs: []string{}, UUIDs: []string{}}
	key := m.key()
	if found {
		delete(l.asking, key)
		if l.unknown[key] == nil {
			return nil
		}
		delete(l.unknown, key)
		return l.write()
	}
	switch {
	case l.unknown[key] != nil:
		m = l.unknown[key]
	case l.asking[key] != nil:
		m = l.asking[key]
	default:
		if len(l.asking) >= maxMachines {
			delete(l.asking, crowded(l.asking))
		}
		l.asking[key] = m
		time.AfterFunc(l.settle, func() { l.settled(key) })
	}
	m.Last = at
	if news := m.note(part[1]); l.unknown[key] == nil || !news && at.Sub(l.written) < time.Minute {
		return nil
	}
	return l.write()
}

// note adds a tag that was asked for and reports whether it is new.
func (m *Machine) note(tag string) bool {
	add := func(list *[]string, name string) bool {
		if slices.Contains(*list, name) || len(*list) >= maxNames {
			return false
		}
		*list = append(*list, name)
		return true
	}
	if mac, ok := strings.CutPrefix(tag, "mac-"); ok {
		if raw, err := hex.DecodeString(mac); err == nil && len(raw) == 6 {
			return add(&m.MACs, fmt.Sprintf("%02x:%02x:%02x:%02x:%02x:%02x", raw[0], raw[1], raw[2], raw[3], raw[4], raw[5]))
		}
	}
	if uuid, ok := strings.CutPrefix(tag, "uuid-"); ok && uuidForm.MatchString(uuid) {
		return add(&m.UUIDs, uuid)
	}
	return add(&m.Names, tag)
}

// settled puts a machine that nothing was found for on the list.
func (l *List) settled(key string) {
	l.mu.Lock()
	m := l.asking[key]
	delete(l.asking, key)
	if m != nil {
		l.unknown[key] = m
		_ = l.write() // the next one is written with it; found says it all the same
	}
	l.mu.Unlock()
	if m != nil {
		l.found(*m)
	}
}

// share is by what a stranger is counted: an IPv4 address, or a network of an IPv6 one, all of whose
// addresses may be one machine's, or one customer's.
func share(from string, bits int) string {
	a, err := netip.ParseAddr(from)
	if err != nil || a.Unmap().Is4() {
		return from
	}
	network, _ := a.Prefix(bits) // an IPv6 address has more
	return network.String()
}

// crowded returns whom a full list leaves out: of the /48 with the most machines, and there of the /64
// with the most, the one that asked the longest ago. Who asks under many names pushes out nobody else.
func crowded(list map[string]*Machine) (key string) {
	sizes := []int{48, 64}
	shares := []map[string]int{{}, {}}
	for _, m := range list {
		for i, bits := range sizes {
			shares[i][share(m.From, bits)]++
		}
	}
	var out *Machine
	more := func(at string, m *Machine) int {
		for i, bits := range sizes {
			if c := cmp.Compare(shares[i][share(m.From, bits)], shares[i][share(out.From, bits)]); c != 0 {
				return c
			}
		}
		return cmp.Or(out.Last.Compare(m.Last), cmp.Compare(at, key))
	}
	for at, m := range list {
		if out == nil || more(at, m) > 0 {
			key, out = at, m
		}
	}
	return key
}

// write keeps the machines that asked last, as far as there is room.
func (l *List) write() error {
	l.written = time.Now()
	for len(l.unknown) > maxMachines {
		delete(l.unknown, crowded(l.unknown))
	}
	list := make([]Machine, 0, len(l.unknown))
	for _, m := range l.unknown {
		list = append(list, *m)
	}
	sort(list)
	data, _ := json.MarshalIndent(list, "", "  ") // texts, and times of now or as JSON had them
	return fault.In(durable.WriteFile(l.file, append(data, '\n'), 0o644), "unknown machines")
}

// Log returns what a server does with each request: it is said, and a file keeps who found no
// overlay. Of is by what 'caisson unknown' finds the file.
func Log(file, of string, say func(format string, args ...any)) (func(httpserver.Request), error) {
	list, err := Open(file, func(m Machine) {
		say("unknown machine at %s: %s ('caisson unknown %s' lists them)", m.From, m.Node(), of)
	})
	if err != nil {
		return nil, cli.WithHint(err, "the list is a help only: remove the file")
	}
	var once sync.Once
	return func(r httpserver.Request) {
		say("%s", r)
		host, _, err := net.SplitHostPort(r.Remote)
		if err != nil {
			return // not an address of a network
		}
		switch r.Status {
		case http.StatusOK, http.StatusNotModified, http.StatusNotFound:
			if err := list.Answered(host, r.Agent, r.Path, r.Status != http.StatusNotFound, r.Time); err != nil {
				once.Do(func() { say("warning: %v", err) })
			}
		}
	}, nil
}

// Row is a machine with its line for nodes: of a site.
type Row struct {
	Machine
	Node string `json:"node"`
}

// Rows returns the rows of machines, which together are nodes that a site takes: one each, also of a
// machine that asked from two addresses. Of equal names who asked first has it as it is. Where machines
// share an address or a UUID, which anybody can say, their rows are comments.
func Rows(list []Machine) []Row {
	rows, asked, taken := []Row{}, map[string]int{}, map[string]bool{} // by a MAC address or a UUID; by name
	list = slices.Clone(list)
	sort(list)
	for _, m := range slices.Backward(list) { // the first questions last
		i := slices.IndexFunc(rows, func(r Row) bool { return m.like(r.Machine) })
		if i >= 0 && rows[i].First.Before(m.First) {
			m.First = rows[i].First
		}
		if i >= 0 {
			rows = slices.Delete(rows, i, i+1)
		}
		rows = append(rows, Row{Machine: m})
	}
	slices.Reverse(rows)
	first := make([]*Row, len(rows))
	for i := range rows {
		first[i] = &rows[i]
		for _, id := range slices.Concat(rows[i].MACs, rows[i].UUIDs) {
			asked[id]++
		}
	}
	slices.SortStableFunc(first, func(a, b *Row) int { return a.First.Compare(b.First) })
	for _, r := range first {
		name := r.name()
		for n := 2; taken[name]; n++ {
			name = fmt.Sprintf("%.58s-%d", r.name(), n)
		}
		taken[name] = true
		r.Node = r.line(name)
		ids := slices.Concat(r.MACs, r.UUIDs)
		if i := slices.IndexFunc(ids, func(id string) bool { return asked[id] > 1 }); i >= 0 {
			r.Node = fmt.Sprintf("# %s # another asked by %s, too", r.Node, ids[i])
		}
	}
	return rows
}

// Node returns the machine as a line of a site's nodes, under the name that it asked by where a
// node may have that, and else under one made of its hardware; "new" where it said none.
func (m Machine) Node() string { return m.line(m.name()) }

func (m Machine) line(name string) string {
	var match []string
	if len(m.MACs) > 0 {
		match = append(match, fmt.Sprintf("macs: [%s]", quoted(m.MACs)))
	}
	if len(m.UUIDs) > 0 {
		match = append(match, fmt.Sprintf("uuids: [%s]", quoted(m.UUIDs)))
	}
	if match == nil {
		return fmt.Sprintf("- {name: %s}", name)
	}
	return fmt.Sprintf("- {name: %s, match: {%s}}", name, strings.Join(match, ", "))
}

// nodeName is a name that a node may have, without words that YAML reads otherwise.
var nodeName = regexp.MustCompile(`^[a-z][a-z0-9-]{2,61}[a-z0-9]$`)

func (m Machine) name() string {
	for _, name := range m.Names {
		if nodeName.MatchString(name) && !slices.Contains([]string{"true", "null"}, name) &&
			!strings.HasPrefix(name, "mac-") && !strings.HasPrefix(name, "uuid-") {
			return name
		}
	}
	switch {
	case len(m.MACs) > 0:
		return "new-" + strings.ReplaceAll(m.MACs[0], ":", "")
	case len(m.UUIDs) > 0:
		return "new-" + m.UUIDs[0]
	}
	return "new"
}

func quoted(list []string) string { return `"` + strings.Join(list, `", "`) + `"` }

// ID is by what a machine is asked for: its first MAC address, or its UUID; "" where it said neither.
func (m Machine) ID() string {
	return slices.Concat(m.MACs, m.UUIDs, []string{""})[0]
}

// Find returns the machine with a MAC address or a UUID. One that asked from two addresses is one; where
// others asked by the same identifier, which anybody can, nobody is chosen.
func (a Answer) Find(id string) (Machine, error) {
	switch {
	case !a.Known:
		return Machine{}, cli.Usage("give --mac and --uuid", "the service does not know who asked in vain")
	case a.Trouble != "":
		return Machine{}, fmt.Errorf("the service cannot read who asked in vain: %s", plain.Line(a.Trouble))
	}
	var found *Machine
	var known []string
	for _, m := range Clean(a.Machines) {
		if m.ID() != "" {
			known = append(known, m.ID())
		}
		if !slices.Contains(m.MACs, strings.ToLower(id)) && !slices.Contains(m.UUIDs, strings.ToLower(id)) {
			continue
		}
		if found != nil && !m.like(*found) {
			return Machine{}, cli.Usage("look at the machine, and name it by --mac and --uuid",
				"two machines asked by %s, from %s and from %s, with other identifiers beside it", id, found.From, m.From)
		}
		if found == nil || m.Last.After(found.Last) {
			found = &m
		}
	}
	if found == nil {
		hint := "none has asked by an address or a UUID"
		if len(known) > 0 {
			hint = "those that asked: " + plain.Some(known, 5)
		}
		return Machine{}, cli.Usage(hint, "no unknown machine has asked by %.60q", id)
	}
	return *found, nil
}

// like reports whether two machines said the same of themselves; names count where they said nothing else.
func (m Machine) like(other Machine) bool {
	same := func(a, b []string) bool {
		return slices.Equal(slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b)))
	}
	return same(m.MACs, other.MACs) && same(m.UUIDs, other.UUIDs) && (m.ID() != "" || same(m.Names, other.Names))
}

// For sorts machines for a node: those that asked by its name first, then those that asked last.
func For(list []Machine, node string) []Machine {
	rank := func(m Machine) int {
		if slices.Contains(m.Names, node) {
			return 0
		}
		return 1
	}
	list = slices.DeleteFunc(slices.Clone(list), func(m Machine) bool { return m.ID() == "" })
	slices.SortStableFunc(list, func(a, b Machine) int { return cmp.Or(rank(a)-rank(b), b.Last.Compare(a.Last)) })
	return list
}

// Says tells in one line by what it asked, and from where.
func (m Machine) Says() string {
	return fmt.Sprintf("%s from %s", strings.Join(slices.Concat(m.MACs, m.UUIDs, m.Names), " "), m.From)
}

// Answer holds what GET /v1/unknown answers.
type Answer struct {
	Known    bool      `json:"known"` // this service knows who asked in vain
	Machines []Machine `json:"machines"`
	Trouble  string    `json:"trouble,omitempty"` // why the list cannot be read
}

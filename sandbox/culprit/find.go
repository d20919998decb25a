// SPDX-License-Identifier: Apache-2.0

package culprit

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/caisson-os/caisson/fleet/history"
	"github.com/caisson-os/caisson/fleet/published"
	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/internal/digest"
	"github.com/caisson-os/caisson/internal/durable"
	"github.com/caisson-os/caisson/internal/fault"
	"github.com/caisson-os/caisson/internal/ownfiles"
	"github.com/caisson-os/caisson/internal/plain"
	"github.com/caisson-os/caisson/spec/site"
	"github.com/caisson-os/caisson/spec/site/compare"
	"github.com/caisson-os/caisson/spec/site/explain"
	"github.com/caisson-os/caisson/spec/site/plan"
)

// Question describes a search: between which generations, and how far it goes.
type Question struct {
	Good, Bad string // generations, as a person writes them; Bad may be "" for the newest
	Cache     string // directory in which answers are kept until the search has ended
	Most      int    // machines to boot
}

// Find finds the smallest change that breaks the checks, and says each step by say.
func (n *Node) Find(ctx context.Context, q Question, say func(format string, args ...any)) (r *Result, err error) {
	n.then, n.say = map[string]Past{}, say
	if n.boot == nil {
		n.boot = n.inMachine
	}
	if err := n.open(ctx); err != nil {
		return nil, err
	}
	good, bad, err := n.span(ctx, q)
	if err != nil {
		return nil, err
	}
	answers, err := n.answers(q.Cache, good, bad)
	if err != nil {
		return nil, err
	}
	unlock, err := n.lock(answers.file + ".work")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, unlock()) }()
	if err := answers.read(); err != nil {
		return nil, err
	}
	if len(answers.known) > 0 {
		say("going on with the answers of %s before", plain.Count(len(answers.known), "machine"))
	}
	say("%s, of which at most %d are booted to find the first that fails", plain.Count(bad-good+1, "generation"), Tries(bad-good+1))
	search := Search{Machine: n, Known: answers.known, Save: answers.save, Most: q.Most,
		Name: func(i int) string { return n.kept[i].String() },
		Say:  func(s Step) { say("%s: %s; %d left", plain.Line(s.What), plain.Line(s.Answer.String()), s.Left) }}
	found, err := search.Run(ctx, good, bad)
	switch {
	case errors.Is(err, ErrMost), errors.Is(err, ErrUnconfirmed):
		return nil, cli.WithHint(err, "the same command goes on")
	case errors.Is(err, ErrFlaps), errors.Is(err, ErrNoEnds):
		return nil, errors.Join(err, answers.forget())
	case err != nil:
		if ctx.Err() != nil {
			say("the answers of %s are kept: the same command goes on", plain.Count(len(answers.known), "machine"))
		}
		return nil, err
	}
	r, err = n.result(ctx, found, len(answers.known))
	return r, cmp.Or(err, answers.forget())
}

// open reads which generations gave the node something else. Those that do not count, or
// cannot be verified, are left out.
func (n *Node) open(ctx context.Context) error {
	list, err := history.List(ctx, n.Fleet, n.Name, nil)
	for _, e := range slices.Backward(list) {
		if e.Refused+e.Mark != "" || e.Node == nil || e.Node.Overlay == "" {
			continue
		}
		last := len(n.kept) - 1 // what lies between may not count
		if last < 0 || n.kept[last].Node.Overlay != e.Node.Overlay || n.kept[last].Node.Layer != e.Node.Layer {
			n.kept = append(n.kept, e)
		}
	}
	if err == nil && len(n.kept) == 0 {
		err = cli.Usage("'caisson history REF' lists what is kept", "nothing is kept of what node %q had", n.Name)
	}
	return err
}

// span returns the numbers of what the node had in the two generations.
func (n *Node) span(ctx context.Context, q Question) (good, bad int, err error) {
	from, err := n.Fleet.Find(ctx, q.Good)
	if err != nil {
		return 0, 0, err
	}
	to := n.kept[len(n.kept)-1].Generation
	if q.Bad != "" {
		if to, err = n.Fleet.Find(ctx, q.Bad); err != nil {
			return 0, 0, err
		}
	}
	if good, err = n.at(from); err == nil {
		bad, err = n.at(to)
	}
	switch {
	case err != nil:
		return 0, 0, err
	case good > bad:
		return 0, 0, cli.Usage("what mended something is found with the check turned round, as in --check '! COMMAND'",
			"--good %s came after --bad %s", from, to)
	case good == bad:
		return 0, 0, cli.Usage("'caisson history REF --node "+n.Name+"' lists what it had",
			"node %q has the same in generation %s as in %s", n.Name, from, to)
	}
	return good, bad, nil
}

func (n *Node) at(g published.Generation) (int, error) {
	for i, e := range slices.Backward(n.kept) {
		if e.Generation.Compare(g) <= 0 {
			return i, nil
		}
	}
	return 0, cli.Usage("'caisson history REF --node "+n.Name+"' lists those that are kept",
		"nothing is kept of what node %q had in generation %s", n.Name, g)
}

// answersCap is more than any search writes down.
const answersCap = 4 << 20

// answers are those of one search, in a file.
type answers struct {
	known map[string]Answer
	file  string
}

// answers returns the answers of one search: of the same node, with the same contents of the same
// generations, the same checks and the same machine, which had as long. dir is the cache's.
func (n *Node) answers(dir string, good, bad int) (*answers, error) {
	question := []any{n.From.Ref().String(), n.Name, n.Checks, n.Within, n.Box.Memory, n.Box.Cards, n.Box.Disk}
	for _, e := range n.kept[good : bad+1] {
		question = append(question, e.Generation, e.Node.Overlay, e.Node.Layer)
	}
	data, err := json.Marshal(question)
	return &answers{known: map[string]Answer{}, file: filepath.Join(dir, "bisect", digest.Hex(digest.Of(data))[:24]+".json")}, err
}

// read reads what an earlier run was answered.
func (a *answers) read() error {
	data, err := ownfiles.ReadPublic(a.file, answersCap)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = json.Unmarshal(data, &a.known)
	}
	return fault.In(err, "read the answers of an earlier run (remove the file to begin again): %s", a.file)
}

// lock makes the directory for what is built, which only one run of a search has: another would remove what this one
// builds. It goes with unlock.
func (n *Node) lock(dir string) (unlock func() error, err error) {
	for {
		if err := os.MkdirAll(dir, 0o700); err != nil { // the cache may begin with it, which is the user's alone
			return nil, err
		}
		d, err := os.Open(dir)
		if err != nil {
			return nil, err
		}
		if err := unix.Flock(int(d.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
			_ = d.Close() // only opened
			return nil, cli.WithHint(fmt.Errorf("lock %s: %w", dir, err), "another run of the same search may have it")
		}
		locked, err := d.Stat()
		if err != nil {
			return nil, errors.Join(err, d.Close())
		}
		if there, err := os.Stat(dir); err != nil || !os.SameFile(there, locked) {
			_ = d.Close() // the run before had it, and has removed it
			continue
		}
		n.work = filepath.Join(dir, "run")
		if err := os.RemoveAll(n.work); err != nil { // a run that was killed may have left half of an agent
			return nil, errors.Join(err, d.Close())
		}
		return func() error { return errors.Join(os.RemoveAll(dir), d.Close()) }, nil
	}
}

// save writes the answers down.
func (a *answers) save() error {
	data, err := json.MarshalIndent(a.known, "", "  ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(a.file), 0o700); err != nil {
		return err
	}
	return durable.WriteFile(a.file, append(data, '\n'), 0o644)
}

// forget removes the file: the search has ended, and another run asks again.
func (a *answers) forget() error {
	return os.RemoveAll(a.file)
}

// Result holds the findings of a search, as bisect -o json prints them.
type Result struct {
	Node    string   `json:"node"`
	Good    string   `json:"good"`    // the generation before
	Bad     string   `json:"bad"`     // the generation that breaks it
	Skipped []string `json:"skipped"` // generations between the two, which could not be tried
	Parts   []Part   `json:"parts"`   // the smallest change that was found: all of them together
	Why     string   `json:"why"`     // what fails
	Tries   int      `json:"tries"`   // machines that were booted, by earlier runs, too

	Author string `json:"author,omitempty"` // of the generation that breaks it, as its publisher wrote
	Reason string `json:"reason,omitempty"`
	Commit string `json:"commit,omitempty"` // of the site
}

// Part is a part of the change.
type Part struct {
	Name    string          `json:"name"`             // KIND/KEY of a setting, layer, layer/IMAGE, layer/packages/SOURCE, part of the overlay
	Changes []plan.Change   `json:"changes"`          // what is in it
	Origin  *explain.Origin `json:"origin,omitempty"` // where the site has it; absent where it does not
	Commit  string          `json:"commit,omitempty"` // at which the site has it there; absent where it has it now
}

// result says of what was found what it is, and where the site has it.
func (n *Node) result(ctx context.Context, f *Found, tries int) (*Result, error) {
	bad := n.kept[f.Bad]
	r := &Result{Node: n.Name, Good: n.kept[f.Good].String(), Bad: bad.String(), Parts: []Part{}, Why: f.Why, Tries: tries,
		Skipped: append([]string{}, plain.Each(f.Skipped, func(i int) string { return n.kept[i].String() })...),
		Author:  bad.Author, Reason: bad.Reason, Commit: bad.Commit}
	a, b, err := n.both(ctx, f.Good, f.Bad)
	if err != nil {
		return nil, err
	}
	for _, name := range f.Parts {
		part, in := Part{Name: name}, name
		i, named := slices.IndexFunc(shares, func(s share) bool { return s.name == name }), n.named(name)
		if named != nil {
			i = slices.IndexFunc(shares, func(s share) bool { return s.name == packagesPart })
		}
		if i >= 0 {
			in = compare.Layer
		}
		o, err := compare.Mix(a.Overlay, b.Overlay, []string{in})
		if err != nil {
			return nil, err
		}
		if part.Changes, err = history.Overlays(ctx, n.Fleet, a.Overlay, o); err != nil {
			return nil, err
		}
		if i >= 0 {
			part.Changes = slices.DeleteFunc(part.Changes, func(c plan.Change) bool {
				return !slices.Contains(shares[i].items, c.Item) || named != nil && !slices.Contains(named, c.Key)
			})
		}
		keys := append([]string{cmp.Or(written[name], name)}, plain.Each(named, func(p string) string { return "apt/packages/" + p })...)
		if part.Origin = n.origin(n.Site, keys); part.Origin == nil {
			n.formerly(&part, keys, bad.Commit, n.kept[f.Good].Commit)
		}
		r.Parts = append(r.Parts, part)
	}
	return r, nil
}

// origin returns where a site has one of the keys for the node, nil where it does not: the node may have left it.
func (n *Node) origin(s *site.Site, keys []string) *explain.Origin {
	e, err := s.Explain(n.Name, nil)
	if err != nil || !e.Known {
		return nil
	}
	for _, one := range e.Settings() {
		if one.Origin != nil && slices.ContainsFunc(keys, one.Has) {
			return one.Origin
		}
	}
	return nil
}

// formerly notes where the site had one of the keys at the first of some commits that has it.
func (n *Node) formerly(p *Part, keys []string, commits ...string) {
	for _, commit := range commits {
		then := n.past(commit)
		if then.Site == nil {
			continue
		}
		if o := n.origin(then.Site, keys); o != nil {
			at := *o
			at.File = strings.TrimPrefix(at.File, then.Dir+"/")
			p.Origin, p.Commit = &at, commit
			return
		}
	}
}

// written says under which key a site has a part that is no item.
var written = map[string]string{"kernelArgs": "machine/kernel/args", compare.Network: "machine/network",
	"persist": "machine/persist", "gates": "health"}

// Write prints what was found for people; the last line is the smallest change.
func (r *Result) Write(w io.Writer) {
	if len(r.Skipped) > 0 {
		cli.Printf(w, "generations that could not be tried, and may be it, too: %s\n", plain.Some(r.Skipped, shown))
	}
	says := slices.DeleteFunc([]string{"generation " + r.Bad, r.Author, r.Reason}, func(text string) bool { return text == "" })
	if r.Commit != "" {
		says = append(says, "site "+r.Commit)
	}
	cli.Printf(w, "passes with %s, fails with %s: %s\n", r.Good, r.Bad, plain.Line(r.Why))
	cli.Printf(w, "%s\n", plain.Line(strings.Join(says, ", ")))
	if len(r.Parts) > 1 {
		cli.Printf(w, "%d parts, of which none was found to break it without the others:\n", len(r.Parts))
	}
	for _, p := range r.Parts {
		p.write(w)
	}
	if len(r.Parts) == 0 {
		cli.Printf(w, "the overlays of both are alike in all that is tried\n")
	}
}

func (p Part) write(w io.Writer) {
	where := "the site does not have it now"
	switch {
	case p.Origin != nil && p.Commit != "":
		where = p.Origin.String() + " at commit " + p.Commit[:min(len(p.Commit), 12)] + ", not in the site now"
	case p.Origin != nil:
		where = p.Origin.String()
	case len(p.Changes) == 1 && strings.HasPrefix(p.Name, compare.Layer+"/"):
		where = "in the layer"
	case p.Name == compare.Layer, strings.HasPrefix(p.Name, compare.Layer+"/"):
		where = "what is in it is not tried apart"
	}
	if len(p.Changes) == 1 {
		cli.Printf(w, "%s; %s\n", p.Changes[0], where)
		return
	}
	for i, c := range p.Changes {
		if i == shown {
			cli.Printf(w, "  … and %d more\n", len(p.Changes)-shown)
			break
		}
		cli.Printf(w, "  %s\n", c)
	}
	cli.Printf(w, "%s; %s\n", plain.Line(p.Name), where)
}

// shown is how many names, or changes of one part, are printed.
const shown = 8

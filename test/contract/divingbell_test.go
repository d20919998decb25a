// SPDX-License-Identifier: Apache-2.0

package contract

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"github.com/caisson-os/caisson/bootagent/fetch"
	"github.com/caisson-os/caisson/bootagent/process"
	"github.com/caisson-os/caisson/builder/root"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/site"
)

// TestMain is also what a script's service starts with, and what lets the trees of
// layers run their programs.
func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == process.LaunchVerb {
		fmt.Fprintln(os.Stderr, process.Launch(os.Args[2]))
		os.Exit(127)
	}
	if len(os.Args) == 2 && os.Args[1] == fetch.Verb {
		if err := fetch.Serve(context.Background(), os.Stdin, os.Stdout, os.Stderr); err != nil {
			os.Exit(1)
		}
		return
	}
	root.Enter()
	os.Exit(m.Run())
}

// difference is a way in which a Divingbell operator could be surprised: what
// Divingbell does with an unchanged values file, and what is promised here. Each
// row runs the real thing at the place where it acts: the site, the items of a
// node, the steps of a build. What is different on purpose is held to
// docs/divingbell.md.
type difference struct {
	number int
	what   string
	holds  func(*probe)
}

var differences = []difference{
	{1, "modes with setuid and sticky bits are set", setuidModes},
	{2, "a script that halts the others halts them at every pass", haltsForGood},
	{3, "a script that fails takes no setting back", failureTakesNothingBack},
	{4, "a change that was taken back is an error", takenBackIsAnError},
	{5, "before and after of mounts hold at boot", mountOrder},
	{6, "listed SSH keys are the only ones", listedKeysOnly},
	{7, "what needs a layer is not silent without one", needsALayer},
	{8, "attached hosts have all verbs", attachedVerbs},
	{9, "always without an interval keeps its pace", alwaysKeepsPace},
	{10, "intervals go on over boots, counts do not", overBoots},
	{11, "what is missing for long degrades", missingForLong},
	{12, "a run that was cut does not fail the next change", cutThenChanged},
	{13, "a file that is gone is not an error when its rule goes", goneFileGoneRule},
	{14, "tso covers what newer kernels have", tsoOfNewKernels},
	{15, "a file with a reused inode is another file", reusedInode},
	{16, "an interface that was made again is another one", interfaceAgain},
	{17, "the first value comes back, not what drifted", firstValue},
	{18, "a later file in sysctl.d does not win", laterFile},
	{19, "nothing is left on the host for the next boot", nothingLeft},
	{20, "each script has a directory of its own", ownDirectory},
	{21, "infinite is a count", infiniteCount},
	{22, "a failure in the background is one of the verb", backgroundFails},
	{23, "a timeout ends what left the session", timeoutEndsAll},
	{24, "the builtin account expires by the two votes", builtinByVotes},
	{25, "the console stays without a password of somebody's", builtinStays},
	{26, "a base's account keeps its number", numberOfBase},
	{27, "a package's account is the package's again", accountOfPackage},
	{28, "a package's profile is replaced, and that is said", profileOfPackage},
	{29, "a file of variables is one", fileOfVariables},
	{30, "mount options that no node takes are told by validate", mountOptions},
	{31, "a map over a list is told with its key", mapOverList},
	{32, "a key that no kernel has is refused, also for others' hosts", noSuchKey},
	{33, "dots in interface names and patterns are told", interfaceKeys},
	{34, "modes copy from one class to another", copiedModes},
	{35, "a quoted switch means what it says, and that is told", quotedSwitch},
	{36, "a failing maintainer script's output is in the error", failingPostinst},
	{37, "ethtool's messages keep their words", ethtoolWords},
	{38, "recorded originals are taken over", recordedOriginals},
	{39, "one distribution of one URL stands in two entries", twoEntries},
}

// TestDivingbellOperators runs each row; one that looked at nothing is a failure.
func TestDivingbellOperators(t *testing.T) {
	for i, d := range differences {
		if d.number != i+1 || d.what == "" || d.holds == nil {
			t.Fatalf("row %d: %d %q", i+1, d.number, d.what)
		}
		t.Run(fmt.Sprintf("%02d %s", d.number, d.what), func(t *testing.T) {
			p := &probe{T: t}
			d.holds(p)
			if p.looked == 0 && !t.Skipped() {
				t.Error("the row looked at nothing")
			}
		})
	}
	if len(differences) != 39 {
		t.Errorf("%d rows, want 39", len(differences))
	}
}

// probe is a test that counts what it looked at.
type probe struct {
	*testing.T
	looked int
}

// elsewhere notes that a child process has looked, and failed the test if it had to.
func (p *probe) elsewhere() { p.looked++ }

func (p *probe) equal(what string, want, got any) {
	p.Helper()
	p.looked++
	if diff := cmp.Diff(want, got); diff != "" {
		p.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

func (p *probe) holds(what string, ok bool, format string, args ...any) {
	p.Helper()
	p.looked++
	if !ok {
		p.Errorf("%s: %s", what, fmt.Sprintf(format, args...))
	}
}

func (p *probe) contains(what, text string, parts ...string) {
	p.Helper()
	for _, part := range parts {
		p.holds(what, strings.Contains(text, part), "%q is not in\n%s", part, text)
	}
}

func (p *probe) must(err error) {
	p.Helper()
	if err != nil {
		p.Fatal(err)
	}
}

// documented holds a page to what is different on purpose.
func (p *probe) documented(page string, parts ...string) {
	p.Helper()
	text, err := os.ReadFile("../../docs/" + page)
	p.must(err)
	p.contains(page, strings.Join(strings.Fields(string(text)), " "), parts...)
}

const (
	oneNode = head + "nodes: [{name: superhost}]\n"
	baked   = oneNode + "layer: {base: {debian: {suite: trixie}}}\n"
	hosts   = oneNode + "attached: true\n"
	key     = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f test"
)

// parse reads files, pairs of names and texts, and returns the site, nil when it is
// not valid, and what is reported, a line each.
func (p *probe) parse(pairs ...string) (*site.Site, string) {
	p.Helper()
	fsys, names := fstest.MapFS{}, []string{}
	for i := 0; i < len(pairs); i += 2 {
		fsys[pairs[i]] = &fstest.MapFile{Data: []byte(pairs[i+1])}
		names = append(names, pairs[i])
	}
	s, report := site.Parse(fsys, names...)
	var said strings.Builder
	for _, problem := range report.Problems {
		fmt.Fprintf(&said, "%s %s: %s (%s)\n", problem.Severity, problem.Rule, problem, problem.Hint)
	}
	return s, said.String()
}

// items compiles a Site for its node.
func (p *probe) items(text string) spec.Items {
	p.Helper()
	s, said := p.parse("site.yaml", text)
	if s == nil {
		p.Fatalf("not valid:\n%s", said)
	}
	o, err := s.Overlay("superhost", "")
	p.must(err)
	return o.Items
}

// recipe compiles a Site for its layer.
func (p *probe) recipe(text string) spec.Recipe {
	p.Helper()
	s, said := p.parse("site.yaml", text)
	if s == nil {
		p.Fatalf("not valid:\n%s", said)
	}
	variants, err := s.Variants()
	p.must(err)
	return variants[0].Recipe
}

// of returns the drift of one item.
func of(drift []spec.Drift, item string) []spec.Drift {
	return slices.DeleteFunc(slices.Clone(drift), func(d spec.Drift) bool { return d.Item != item })
}

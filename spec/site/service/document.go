// SPDX-License-Identifier: Apache-2.0

// Package service reads which services of a site take their files from git: the
// documents of kind NodeService, and the lock beside the site.
//
// A document says where files come from and where nodes have them. What a branch
// means today is not in it: the [Lock] names a commit for each service, and the
// image that was made of it, so that the same site gives the same overlays until
// somebody updates the lock. Both are only read here, and nothing is asked.
package service

import (
	"cmp"
	"path"
	"slices"
	"strings"

	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/rules"
	"github.com/caisson-os/caisson/spec/site/inventory"
	"github.com/caisson-os/caisson/spec/site/maintenance"
	"github.com/caisson-os/caisson/spec/site/report"
	"github.com/caisson-os/caisson/spec/site/shape"
)

// ServiceDoc is a NodeService as it is written. Its kind is not called Service because
// one of Kubernetes is.
type ServiceDoc struct {
	maintenance.HeadDoc
	Kind shape.Text `site:"kind,required" enum:"NodeService"`
	Spec specDoc    `site:"spec,required"`
}

type specDoc struct {
	Unit        shape.Text     `site:"unit" doc:"unit of systemd, .service may be left out; the name of the document when absent"`
	Nodes       []shape.Text   `site:"nodes" doc:"names of NodeSets; every node when absent"`
	Git         gitDoc         `site:"git,required"`
	User        shape.Text     `site:"user" doc:"user of the layer that owns the directories made for to; root when absent"`
	Package     shape.Text     `site:"package" doc:"package that the layer must have"`
	Directories []directoryDoc `site:"directories,required"`
	Action      shape.Text     `site:"action" enum:"start,reload,restart,reload-or-restart" doc:"what is done when files have changed; a unit that does not run is started; nothing when absent"`
}

type gitDoc struct {
	URL            shape.Text `site:"url,required" doc:"https, ssh, http or file, without credentials"`
	Branch         shape.Text `site:"branch" doc:"branch; one of branch, tag and commit is given"`
	Tag            shape.Text `site:"tag"`
	Commit         shape.Text `site:"commit" doc:"commit, all of its digits"`
	AllowedSigners shape.Text `site:"allowedSigners" doc:"file beside this one, see ssh-keygen(1): commits must be signed by one of its keys"`
	At             report.Pos
}

type directoryDoc struct {
	From shape.Text `site:"from,required" doc:"path in the repository; . is all of it"`
	To   shape.Text `site:"to,required" doc:"absolute path on the node"`
	File shape.Flag `site:"file" doc:"from is one file, not a directory"`
	At   report.Pos
}

// Service is a NodeService, checked.
type Service struct {
	spec.Service // without what the lock says
	Git          Git
	sets         []maintenance.Set // of these nodes; of every node when nil
	at           report.Pos
	unitAt       report.Pos
	signersAt    report.Pos
	to           map[string]report.Pos
}

// Git is where files come from. One of Branch, Tag and Commit is given.
type Git struct {
	URL            string
	Branch         string
	Tag            string
	Commit         string
	AllowedSigners string // file, as the site names others; "" takes any commit
}

// Ref says what is followed, as people write it: branch main.
func (g Git) Ref() string {
	switch {
	case g.Branch != "":
		return "branch " + g.Branch
	case g.Tag != "":
		return "tag " + g.Tag
	}
	return "commit " + g.Commit
}

// Has reports whether a node has the service.
func (s *Service) Has(n inventory.Node) bool {
	return s.sets == nil || slices.ContainsFunc(s.sets, func(set maintenance.Set) bool { return set.Has(n) })
}

// Places are the paths that nodes get, and where they were asked for.
func (s *Service) Places() map[string]report.Pos { return s.to }

// SignersAt is where the service names its allowed signers.
func (s *Service) SignersAt() report.Pos { return s.signersAt }

// At is where the service was written.
func (s *Service) At() report.Pos { return s.at }

// Check makes services of documents, sorted by name, and reports what is wrong with
// them. Beside returns the name of a file that the document at a place names.
func Check(c *shape.Checker, docs []ServiceDoc, m maintenance.Maintenance, nodes []inventory.Node, beside func(report.Pos, string) string) []Service {
	var out []Service
	maintenance.CheckEach(c, docs, func(d ServiceDoc) { out = append(out, d.check(c, m, beside)) })
	slices.SortFunc(out, func(a, b Service) int { return cmp.Compare(a.Name, b.Name) })
	checkPairs(c, out, nodes)
	return out
}

func (d *ServiceDoc) check(c *shape.Checker, m maintenance.Maintenance, beside func(report.Pos, string) string) Service {
	name := d.Metadata.Name
	s := Service{at: name.At, to: map[string]report.Pos{}, unitAt: cmp.Or(d.Spec.Unit.At, name.At)}
	s.Service = spec.Service{Name: name.S, Unit: unitName(cmp.Or(d.Spec.Unit.S, name.S)), User: d.Spec.User.S, Package: d.Spec.Package.S, Action: d.Spec.Action.S}
	c.In("nodes", func() { s.sets = m.PickSets(c, d.Spec.Nodes) })
	c.In("git", func() { s.Git, s.signersAt = d.Spec.Git.check(c, beside), d.Spec.Git.AllowedSigners.At })
	c.In("directories", func() {
		for i, dir := range d.Spec.Directories {
			c.In(shape.Nth(i), func() { s.add(c, dir) })
		}
	})
	slices.SortFunc(s.Directories, func(a, b spec.ServiceDirectory) int { return cmp.Compare(a.To, b.To) })
	whole := s.Service
	whole.Action = "" // its words are in the document's shape
	if len(d.Spec.Directories) > 0 && len(s.Directories) != len(d.Spec.Directories) {
		whole.Directories = []spec.ServiceDirectory{{From: "x", To: "/srv/x"}} // each was said to be wrong already
	}
	c.ValidFields(name.At, map[string]report.Pos{"name": name.At, "unit": s.unitAt, "user": d.Spec.User.At, "package": d.Spec.Package.At}, rules.Service(whole))
	return s
}

// add takes a directory that can be one.
func (s *Service) add(c *shape.Checker, d directoryDoc) {
	if !d.From.Set() || !d.To.Set() {
		return // said already
	}
	dir := spec.ServiceDirectory{From: path.Clean(d.From.S), To: path.Clean(d.To.S), File: d.File.On}
	if strings.HasPrefix(d.To.S, "/") && !c.Valid(d.To.At, rules.AuthoredPath(d.To.S)) {
		return
	}
	if !c.ValidFields(d.At, map[string]report.Pos{"from": d.From.At, "to": d.To.At, "file": d.File.At}, rules.ServiceDirectory(dir)) {
		return
	}
	s.Directories = append(s.Directories, dir)
	s.to[dir.To] = d.To.At
}

// unitName completes the name of a unit as systemctl(1) does.
func unitName(name string) string {
	if rules.Unit(name) == nil {
		return name
	}
	return name + ".service"
}

func (d *gitDoc) check(c *shape.Checker, beside func(report.Pos, string) string) Git {
	g := Git{URL: d.URL.S, Branch: d.Branch.S, Tag: d.Tag.S, Commit: d.Commit.S}
	if d.URL.Set() {
		c.In("url", func() { c.Valid(d.URL.At, rules.GitURL(g.URL)) })
	}
	ways := 0
	for name, t := range map[string]shape.Text{"branch": d.Branch, "tag": d.Tag} {
		if t.Set() {
			ways++
			c.In(name, func() { c.Valid(t.At, rules.GitRef(t.S)) })
		}
	}
	if d.Commit.Set() {
		ways++
		c.In("commit", func() { c.Valid(d.Commit.At, rules.GitCommit(g.Commit)) })
	}
	if ways != 1 {
		c.Errorf(d.At, "git-ref", "as in branch: main", "git has one of branch, tag and commit, this one has %d", ways)
	}
	if a := d.AllowedSigners; a.Set() {
		g.AllowedSigners = beside(a.At, a.S)
	}
	if strings.HasPrefix(g.URL, "http://") && g.AllowedSigners == "" {
		c.In("url", func() {
			c.Warnf(d.URL.At, "plain-http", "write https://, or name allowedSigners", "whoever is between here and the server decides what %s says", d.URL.S)
		})
	}
	return g
}

// checkPairs reports two services that a node cannot both have.
func checkPairs(c *shape.Checker, all []Service, nodes []inventory.Node) {
	for i := range all {
		for j := range all[:i] {
			a, b := &all[j], &all[i]
			place, other := overlap(a, b)
			if a.Unit != b.Unit && place == "" {
				continue
			}
			at := slices.IndexFunc(nodes, func(n inventory.Node) bool { return a.Has(n) && b.Has(n) })
			if at < 0 && (a.sets != nil || b.sets != nil) {
				continue
			}
			where := "every node"
			if at >= 0 {
				where = "node " + nodes[at].Name
			}
			c.In(b.Name, func() {
				if a.Unit == b.Unit {
					c.Errorf(b.unitAt, "two-owners", "give them different nodes", "%s would have two services of %s: %s, too", where, b.Unit, a.Name)
				}
				if place != "" {
					c.Errorf(b.to[other], "two-owners", "keep one of the two", "on %s %s and %s of service %s lie in each other", where, other, place, a.Name)
				}
			})
		}
	}
}

// overlap returns the first two places that lie in each other.
func overlap(a, b *Service) (of, with string) {
	for _, x := range a.Directories {
		for _, y := range b.Directories {
			if rules.Overlap(x.To, y.To) {
				return x.To, y.To
			}
		}
	}
	return "", ""
}

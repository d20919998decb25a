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
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/caisson-os/caisson/internal/digest"
	"github.com/caisson-os/caisson/internal/plain"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/rules"
	"github.com/caisson-os/caisson/spec/site/inventory"
	"github.com/caisson-os/caisson/spec/site/maintenance"
	"github.com/caisson-os/caisson/spec/site/override"
	"github.com/caisson-os/caisson/spec/site/report"
	"github.com/caisson-os/caisson/spec/site/shape"
	"github.com/caisson-os/caisson/spec/site/tree"
)

// ServiceDoc is a NodeService as it is written. Its kind is not called Service because
// one of Kubernetes is.
type ServiceDoc struct {
	maintenance.HeadDoc
	Kind shape.Text `site:"kind,required" enum:"NodeService"`
	Spec specDoc    `site:"spec,required"`
}

type specDoc struct {
	Unit        string         `site:"unit" doc:"unit of systemd, .service may be left out; the name of the document when absent"`
	Nodes       []shape.Text   `site:"nodes" doc:"names of NodeSets; every node when absent"`
	Git         Git            `site:"git,required"`
	User        string         `site:"user" doc:"user of the layer that owns the directories made for to; root when absent"`
	Package     string         `site:"package" doc:"package that the layer must have"`
	Directories []directoryDoc `site:"directories,required"`
	Action      string         `site:"action" enum:"start,reload,restart,reload-or-restart" doc:"done as files change; nothing when absent"`
	V           *tree.Value
}

// directoryDoc has the name of its entry in the schema.
type directoryDoc spec.ServiceDirectory

// Service is a NodeService, checked.
type Service struct {
	spec.Service // without what the lock says
	Git          Git
	sets         maintenance.Sets
	At           report.Pos
	unitAt       report.Pos
	SignersAt    report.Pos            // where it names its allowed signers
	Places       map[string]report.Pos // paths that nodes get, and where they were asked for
}

// Git is where files come from. One of Branch, Tag and Commit is given; AllowedSigners is as the
// site names other files.
type Git struct {
	URL            string `site:"url,required" doc:"https, ssh, http or file, without credentials"`
	Branch         string `site:"branch" doc:"branch; one of branch, tag and commit is given"`
	Tag            string `site:"tag"`
	Commit         string `site:"commit" doc:"commit, all of its digits"`
	AllowedSigners string `site:"allowedSigners" doc:"file beside this one, see ssh-keygen(1): commits must be signed by one of its keys"`
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
func (s *Service) Has(n inventory.Node) bool { return s.sets.Has(n) }

// Check makes services of documents, sorted by name, and reports what is wrong with
// them. Beside returns the name of a file that the document at a place names.
func Check(c *shape.Checker, docs []ServiceDoc, m maintenance.Maintenance, nodes []inventory.Node,
	beside func(report.Pos, string) string) []Service {
	var out []Service
	maintenance.CheckEach(c, docs, func(d ServiceDoc) { out = append(out, d.check(c, m, beside)) })
	slices.SortFunc(out, func(a, b Service) int { return cmp.Compare(a.Name, b.Name) })
	checkPairs(c, out, nodes)
	return out
}

func (d *ServiceDoc) check(c *shape.Checker, m maintenance.Maintenance, beside func(report.Pos, string) string) Service {
	name, v := d.Metadata.Name, d.Spec.V
	s := Service{Git: d.Spec.Git, At: name.At, Places: map[string]report.Pos{}, unitAt: cmp.Or(c.At(v, "unit"), name.At),
		SignersAt: c.At(v, "git", "allowedSigners")}
	s.Service = spec.Service{Name: name.S, Unit: unitName(cmp.Or(d.Spec.Unit, name.S)), User: d.Spec.User,
		Package: d.Spec.Package, Action: d.Spec.Action}
	c.In("nodes", func() { s.sets = m.PickSets(c, d.Spec.Nodes) })
	c.In("git", func() { s.Git.check(c, v.Get("git"), beside) })
	shape.Each(c, "directories", d.Spec.Directories, func(i int, dir directoryDoc) {
		s.add(c, v.Get("directories").List[i], spec.ServiceDirectory(dir))
	})
	slices.SortFunc(s.Directories, func(a, b spec.ServiceDirectory) int { return cmp.Compare(a.To, b.To) })
	whole := s.Service
	whole.Action = "" // its words are in the document's shape
	if len(d.Spec.Directories) > 0 && len(s.Directories) != len(d.Spec.Directories) {
		whole.Directories = []spec.ServiceDirectory{{From: "x", To: "/srv/x"}} // each was said to be wrong already
	}
	c.ValidFields(name.At, map[string]report.Pos{"name": name.At, "unit": s.unitAt, "user": c.At(v, "user"),
		"package": c.At(v, "package")}, rules.Service(whole))
	return s
}

// add takes a directory that can be one, and that v says.
func (s *Service) add(c *shape.Checker, v *tree.Value, dir spec.ServiceDirectory) {
	if !c.Has(v, "from") || !c.Has(v, "to") {
		return // said already
	}
	to := c.At(v, "to")
	if strings.HasPrefix(dir.To, "/") && !c.Valid(to, rules.AuthoredPath(dir.To)) {
		return
	}
	dir.From, dir.To = path.Clean(dir.From), path.Clean(dir.To)
	if !c.ValidIn(c.At(v), v, rules.ServiceDirectory(dir)) {
		return
	}
	s.Directories = append(s.Directories, dir)
	s.Places[dir.To] = to
}

// unitName completes the name of a unit as systemctl(1) does.
func unitName(name string) string {
	if rules.Unit(name) == nil {
		return name
	}
	return name + ".service"
}

func (g *Git) check(c *shape.Checker, v *tree.Value, beside func(report.Pos, string) string) {
	ways := 0
	for key, rule := range map[string]func() error{"url": func() error { return rules.GitURL(g.URL) },
		"branch": func() error { return rules.GitRef(g.Branch) },
		"tag":    func() error { return rules.GitRef(g.Tag) }, "commit": func() error { return rules.GitCommit(g.Commit) }} {
		if c.Has(v, key) {
			if key != "url" {
				ways++
			}
			c.In(key, func() { c.Valid(c.At(v, key), rule()) })
		}
	}
	c.Refuse(ways != 1, c.At(v), "git-ref", "as in branch: main", "git has one of branch, tag and commit, this one has %d", ways)
	if at := c.At(v, "allowedSigners"); at != (report.Pos{}) {
		g.AllowedSigners = beside(at, g.AllowedSigners)
	}
	if strings.HasPrefix(g.URL, "http://") && g.AllowedSigners == "" {
		c.In("url", func() {
			c.Warnf(c.At(v, "url"), "plain-http", "write https://, or name allowedSigners",
				"whoever is between here and the server decides what %s says", g.URL)
		})
	}
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
				c.Refuse(a.Unit == b.Unit, b.unitAt, "two-owners", "give them different nodes", "%s would have two services of %s: %s, too", where,
					b.Unit, a.Name)
				c.Refuse(place != "", b.Places[other], "two-owners", "keep one of the two", "on %s %s and %s of service %s lie in each other", where, other,
					place, a.Name)
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

// Services are those of a site, and what is locked of them.
type Services struct {
	List     []Service // sorted by name
	LockFile string    // name of the lock, beside the site
	Lock     *Lock     // nil where there is none
}

// Locked returns what is locked of a service: its commit and its image.
func (s Services) Locked(name string) (Locked, bool) {
	if s.Lock == nil {
		return Locked{}, false
	}
	l, ok := s.Lock.Services[name]
	return l, ok
}

// CopyLock returns a copy of the lock to change; an empty one where there is none.
func (s Services) CopyLock() *Lock {
	l := NewLock()
	if s.Lock != nil {
		maps.Copy(l.Services, s.Lock.Services)
	}
	return l
}

// Unlocked says why a service has no commit to be published at, "" where it has one.
func (s Services) Unlocked(v *Service) string {
	l, ok := s.Locked(v.Name)
	if !ok {
		return "it is not in " + LockName
	}
	if stale := l.Stale(v); stale != "" {
		return LockName + " is older than the site: " + stale
	}
	return ""
}

// Of returns what a node gets. What is not locked has no commit.
func (s Services) Of(n inventory.Node) (out []spec.Service) {
	for i := range s.List {
		v := &s.List[i]
		if !v.Has(n) {
			continue
		}
		one := v.Service
		if l, _ := s.Locked(v.Name); s.Unlocked(v) == "" {
			one.Commit, one.Image = l.Commit, l.Image
		}
		out = append(out, one)
	}
	return out
}

// Publishable refuses what [Services.Of] returned without an image to name.
func (s Services) Publishable(list []spec.Service) error {
	for _, v := range list {
		if v.Image.Digest != "" {
			continue
		}
		i := slices.IndexFunc(s.List, func(o Service) bool { return o.Name == v.Name })
		return report.Invalidf("caisson services update", "service %s has no commit: %s", v.Name, s.Unlocked(&s.List[i]))
	}
	return nil
}

// Read reads the lock of services that were checked, from a directory; read returns nil of a file
// that is not there, or cannot be read.
func Read(c *shape.Checker, list []Service, dir string, read func(name string, limit int64) []byte) Services {
	out := Services{List: list, LockFile: path.Join(dir, LockName)}
	if len(list) == 0 {
		return out
	}
	data := read(out.LockFile, MaxLock)
	if data == nil {
		return out
	}
	lock, err := ParseLock(data)
	if err != nil {
		hint := "'caisson services update' writes it"
		var mend interface{ Hint() string }
		if errors.As(err, &mend) {
			hint = mend.Hint()
		}
		c.Report.Add(report.Problem{File: out.LockFile, Severity: report.Error, Rule: "lock", Message: "read " +
			LockName + ": " + err.Error(), Hint: hint})
		return out
	}
	out.Lock = lock
	return out
}

// CheckPlaces reports places of services that modules have, too, or that are kept.
func (s Services) CheckPlaces(c *shape.Checker, parts override.Parts, kept []string) {
	for i := range s.List {
		v := &s.List[i]
		c.In(v.Name, func() {
			for _, to := range slices.Sorted(maps.Keys(v.Places)) {
				checkPlace(c, to, v.Places[to], parts, kept)
			}
			for _, d := range v.Directories {
				c.Refuse(d.To == rules.UnitFile(v.Unit)+".d", v.Places[d.To], "two-owners", "name single files in it",
					"%s holds what caisson adds to the unit", d.To)
			}
		})
	}
}

func checkPlace(c *shape.Checker, to string, at report.Pos, parts override.Parts, paths []string) {
	for _, p := range parts {
		for _, owned := range slices.Sorted(maps.Keys(maps.Collect(p.Owned()))) {
			if rules.Overlap(to, path.Clean(owned)) {
				c.Errorf(at, "two-owners", "keep one of the two", "%s is in the way of %s, which %s writes", to, owned, p.Name)
				return
			}
		}
		if p.Always(to) {
			c.Errorf(at, "two-owners", "keep one of the two", "%s is written by %s, too", to, p.Name)
			return
		}
	}
	for _, kept := range paths {
		if rules.Overlap(to, kept) {
			c.Errorf(at, "two-owners", "name a path that is not kept",
				"%s lies in %s of layer.persist: what is kept there would outlive the service", to, kept)
			return
		}
	}
}

// NeedPackages adds the packages of services to what a host that has no layer reports
// where it lacks them.
func NeedPackages(needs []spec.NeedsLayer, list []spec.Service) []spec.NeedsLayer {
	for _, v := range list {
		if v.Package != "" && !slices.ContainsFunc(needs, func(n spec.NeedsLayer) bool { return n.Item == "apt" && n.Key == v.Package }) {
			needs = append(needs, spec.NeedsLayer{Item: "apt", Key: v.Package, To: "installed"})
		}
	}
	return needs
}

// LockName is the lock's file, beside the site.
const LockName = "services.lock"

// LockKind is the kind of a [Lock].
const LockKind = "ServicesLock"

// MaxLock bounds the file.
const MaxLock = 8 << 20

// Lock says which commit each service is at.
type Lock struct {
	APIVersion string            `json:"apiVersion"`
	Kind       string            `json:"kind"`
	Services   map[string]Locked `json:"services"`
}

// Locked is one service's row.
type Locked struct {
	URL    string    `json:"url"`
	Ref    string    `json:"ref"`              // that was followed, as [Git.Ref]
	From   []string  `json:"from"`             // paths of the repository that are in the image, sorted
	Commit string    `json:"commit"`           // the last one that changed what is in the image
	Date   time.Time `json:"date"`             // of the commit, and of every file
	Image  spec.Blob `json:"image"`            // made of them
	Signed *Signed   `json:"signed,omitempty"` // where the service has signers
	Frozen *Frozen   `json:"frozen,omitempty"` // updates leave it alone
}

// Signed is the signed commit that a service's branch or tag has to lead on from: the
// one that it led to when git was last asked, or the one that a rollback named.
type Signed struct {
	Commit string    `json:"commit"`
	Date   time.Time `json:"date"`
}

// Frozen says why a service stays where it is.
type Frozen struct {
	Reason string    `json:"reason"`
	Author string    `json:"author,omitempty"`
	Since  time.Time `json:"since"`
}

// NewLock returns a lock that knows nothing.
func NewLock() *Lock {
	return &Lock{APIVersion: spec.APIVersion, Kind: LockKind, Services: map[string]Locked{}}
}

// ParseLock reads a lock, strictly.
func ParseLock(data []byte) (*Lock, error) {
	if len(data) > MaxLock {
		return nil, fmt.Errorf("more than %d MiB", MaxLock>>20)
	}
	l := &Lock{}
	if err := spec.DecodeFile(data, LockKind, l); err != nil {
		return nil, err
	}
	for name, s := range l.Services {
		if err := s.check(); err != nil {
			return nil, fmt.Errorf("service %.80q: %w", name, err)
		}
	}
	if l.Services == nil {
		l.Services = map[string]Locked{}
	}
	return l, nil
}

func (l Locked) check() error {
	if err := rules.GitCommit(l.Commit); err != nil {
		return err
	}
	if l.Signed != nil {
		if err := rules.GitCommit(l.Signed.Commit); err != nil {
			return fmt.Errorf("signed: %w", err)
		}
	}
	if !digest.Valid(l.Image.Digest) || l.Image.Size <= 0 {
		return fmt.Errorf("invalid image: digest %.80q, %d bytes", l.Image.Digest, l.Image.Size)
	}
	return nil
}

// Encode returns the file's content.
func (l *Lock) Encode() ([]byte, error) {
	data, err := json.MarshalIndent(l, "", "  ")
	return append(data, '\n'), err
}

// From are the paths of the repository that a service needs, sorted, each once.
func (s *Service) From() []string {
	out := plain.Each(s.Directories, func(d spec.ServiceDirectory) string { return d.From })
	slices.Sort(out)
	return slices.Compact(out)
}

// Stale says why a row is not the one of a service as it is now, "" when it is. What
// is frozen, or went back, is at a commit of the same repository.
func (l Locked) Stale(s *Service) string {
	switch {
	case l.URL != s.Git.URL:
		return "locked for repository " + l.URL
	case !slices.Equal(l.From, s.From()):
		return "locked for other directories"
	case l.Ref != s.Git.Ref():
		return "locked for " + l.Ref
	case s.Git.AllowedSigners != "" && l.Signed == nil:
		return "locked without a check of signatures"
	}
	return ""
}

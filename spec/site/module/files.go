// SPDX-License-Identifier: Apache-2.0

package module

import (
	"cmp"
	"fmt"
	"path"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/caisson-os/caisson/internal/digest"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/rules"
	"github.com/caisson-os/caisson/spec/site/report"
	"github.com/caisson-os/caisson/spec/site/shape"
	"github.com/caisson-os/caisson/spec/site/tree"
)

type fileDoc struct {
	Path    shape.Text  `site:"path" doc:"absolute path below /etc; the entry's name when absent"`
	Content shape.Block `site:"content" doc:"the file's text"`
	File    shape.Text  `site:"file" doc:"file beside the site that holds the text, instead of content"`
	Secret  shape.Text  `site:"secret" doc:"name of the secret that is the content, see docs/secrets.md; the path links to a file in memory"`
	Owner   shape.Text  `site:"owner" doc:"name or number; root when absent"`
	Group   shape.Text  `site:"group" doc:"name or number; root when absent"`
	Mode    shape.Text  `site:"mode" doc:"octal permissions; 0644 when absent, 0400 of a secret"`
	At      report.Pos
}

var filesModule = Module{Name: "files", Doc: reflect.TypeFor[shape.Raw[shape.Map[fileDoc]]](), About: "small files below /etc",
	Inline: inline(map[string]string{"file": "content"}), Compile: (*Checker).files,
	// A file may hold a secret: only its identity is shown.
	Lines: func(i *spec.Items) (out []Line) {
		for _, f := range i.Files {
			text := fmt.Sprintf("%s %s:%s, ", cmp.Or(f.Mode, "0644"), cmp.Or(f.Owner, "root"), cmp.Or(f.Group, "root"))
			if f.Secret != "" {
				text += "secret " + f.Secret
			} else {
				text += fmt.Sprintf("%d bytes, %s", len(f.Content), identity(f.Content))
			}
			out = append(out, Line{f.Path, text})
		}
		return out
	},
}

func (c *Checker) files(v *tree.Value, f *Fragment) {
	paths := map[string]shape.Text{}
	shape.Entries(c.Checker, v, func(e shape.Entry[fileDoc]) {
		at := e.Val.At
		if at == (report.Pos{}) {
			return
		}
		file := spec.File{Path: path.Clean(cmp.Or(e.Val.Path.S, e.Key.S)), Content: e.Val.Content.S,
			Secret: e.Val.Secret.S, Owner: e.Val.Owner.S, Group: e.Val.Group.S}
		c.Refuse(!e.Val.Content.Set() && !e.Val.Secret.Set(), at, "required", "write content, file or secret; content: '' is an empty file",
			"the file has no content")
		c.Refuse(e.Val.Content.Set() && e.Val.Secret.Set() && file.Content == "", e.Val.Secret.At, "contradiction", "keep one of the two",
			"the file has content and a secret")
		c.secret(e.Val.Secret)
		if strings.HasPrefix(file.Content, "#!") {
			c.lineFeeds(e.Val.Content.Text)
		}
		c.secretsIn(e.Val.Content.Text)
		if !strings.HasPrefix(cmp.Or(e.Val.Path.S, e.Key.S), "/") {
			c.Errorf(cmp.Or(e.Val.Path.At, e.Key.At), "path", "give path, or name the entry by it",
				"%q is not an absolute path", cmp.Or(e.Val.Path.S, e.Key.S))
			return
		}
		mode, err := rules.ParseMode(e.Val.Mode.S)
		c.Valid(e.Val.Mode.At, err)
		if file.Mode = mode.String(); file.Secret != "" && file.Mode == "" {
			file.Mode = "0400"
		}
		where := cmp.Or(e.Val.Path.At, e.Key.At)
		c.ValidFields(at, map[string]report.Pos{"path": where, "content": e.Val.Content.At, "secret": e.Val.Secret.At, "mode": e.Val.Mode.At,
			"owner": e.Val.Owner.At, "group": e.Val.Group.At}, rules.File(file))
		if why := passedOver(file.Path, mode); why != "" {
			c.Warnf(where, "not-read", "give it a name and a mode that are read", "%s has no effect: %s", file.Path, why)
		}
		if file.Path == "/etc/iscsi/initiatorname.iscsi" && strings.Contains("\n"+file.Content, "\nGenerateName=yes") {
			c.Warnf(e.Val.Content.At, "rewritten", "write InitiatorName=…, or leave the file out: a node has a name of its own",
				"open-iscsi puts a name in the place of GenerateName, and the agent takes it back")
		}
		if first, dup := paths[file.Path]; dup {
			c.Errorf(where, "duplicate-path", "", "%s is written by %s already, at %s", file.Path, first.S, first.At)
			return
		}
		paths[file.Path] = e.Key
		f.Owns[file.Path] = where
		f.Items.Files = append(f.Items.Files, file)
	})
	slices.SortFunc(f.Items.Files, func(a, b spec.File) int { return strings.Compare(a.Path, b.Path) })
	c.timeFiles(f)
}

// timeFiles says which file of a time service makes it keep to itself that it keeps the clock.
func (c *Checker) timeFiles(f *Fragment) {
	for _, s := range spec.TimeServices {
		text, secret := "", false
		for _, file := range f.Items.Files {
			if part, _ := path.Match(s.Parts, file.Path); part || file.Path == s.Config { // the pattern is ours
				text, secret = text+file.Content+"\n", secret || file.Secret != ""
			}
		}
		if at, own := f.Owns[s.Config]; own && !secret && !s.Tells(text) {
			c.Warnf(at, "no-time", "add the line rtcsync", "%s has no rtcsync: nobody can know that the clock is right, so no window opens", s.Config)
		}
	}
}

// reader returns the content of a file beside the site. It reports what it cannot
// read, and returns "" for it.
type reader func(name string, at report.Pos) string

// inline replaces, in each entry of a map, the keys that name a file beside the site by
// the keys that hold its content: keys has the one by the other.
func inline(keys map[string]string) func(*shape.Checker, *tree.Value, reader) *tree.Value {
	return func(c *shape.Checker, v *tree.Value, read reader) *tree.Value {
		return each(c, v, func(entry *tree.Value) *tree.Value {
			for from, to := range keys {
				name := entry.Get(from)
				switch {
				case name == nil || name.Kind != tree.Scalar:
				case entry.Get(to) != nil:
					c.Errorf(name.At, "contradiction", "keep one of the two", "%s and %s are both given", from, to)
				default:
					c.In(from, func() { entry = entry.Without(from).With(to, content(name, read)) })
				}
			}
			return entry
		})
	}
}

// content returns the content of the file that a value names, in the value's place.
func content(name *tree.Value, read reader) *tree.Value {
	out := *name
	out.Text, out.Plain = read(name.Text, name.At), false
	return &out
}

// identity returns a value in a few characters: what must not or need not be
// shown still shows when it changes.
func identity(v any) string {
	data, err := spec.Encode(v)
	if err != nil {
		panic(err) // plain data
	}
	return digest.Short(data)
}

// optionally spells a key that a "-" may stand before: what a kernel lacks of it is not an error.
func optionally(spell func(key string) string) func(key string) string {
	return func(key string) string {
		name, optional := strings.CutPrefix(key, "-")
		if name = spell(name); optional {
			name = "-" + name
		}
		return name
	}
}

// optionals calls do for each of such keys of a map. One that is given twice is reported, by what it is.
func (c *Checker) optionals(v *tree.Value, what string, do func(name string, optional bool, e shape.Entry[shape.Text])) {
	given := map[string]report.Pos{}
	shape.Entries(c.Checker, v, func(e shape.Entry[shape.Text]) {
		name, optional := strings.CutPrefix(e.Key.S, "-")
		if first, dup := given[name]; dup {
			c.Errorf(e.Key.At, "duplicate-key", "keep one of the two; an override must write the leading - as the base does",
				"the same %s is given at %s", what, first)
			return
		}
		given[name] = e.Key.At
		do(name, optional, e)
	})
}

// directory is one whose reader passes over some of the names in it.
type directory struct {
	dir   string                 // a pattern of path.Match
	reads func(name string) bool // by its name
	how   string                 // what it reads
	runs  bool                   // it runs them, and needs them to be executable
}

var (
	dotConf  = ending(".conf")
	runParts = regexp.MustCompile(`^[A-Za-z0-9_-]+$`).MatchString
	taboo    = regexp.MustCompile(`~$|,v$|\.(bak|cfsaved|disabled|dpkg-(bak|del|dist|new|old|tmp)|ignored|old|orig|` +
		`rej|rhn-cfg-tmp-.*|rpm(new|orig|save)|swp|ucf-(dist|new|old)|v)$`)
)

const byRunParts = "run-parts(8) runs names of letters, digits, _ and - only"

// directories are those of Debian whose reader has a rule for names.
var directories = []directory{
	{"/etc/sudoers.d", func(name string) bool { return !strings.Contains(name, ".") && !strings.HasSuffix(name, "~") },
		"sudoers(5) reads names without a dot and without ~ at the end", false},
	{"/etc/cron.d", runParts, "cron(8) reads names of letters, digits, _ and - only", false},
	{"/etc/cron.hourly", runParts, byRunParts, true},
	{"/etc/cron.daily", runParts, byRunParts, true},
	{"/etc/cron.weekly", runParts, byRunParts, true},
	{"/etc/cron.monthly", runParts, byRunParts, true},
	{"/etc/update-motd.d", runParts, byRunParts, true},
	{"/etc/network/if-*.d", runParts, byRunParts, true},
	{"/etc/modprobe.d", dotConf, "modprobe.d(5) reads names that end in .conf", false},
	{"/etc/modules-load.d", dotConf, "modules-load.d(5) reads names that end in .conf", false},
	{"/etc/sysctl.d", dotConf, "sysctl.d(5) reads names that end in .conf", false},
	{"/etc/tmpfiles.d", dotConf, "tmpfiles.d(5) reads names that end in .conf", false},
	{"/etc/sysusers.d", dotConf, "sysusers.d(5) reads names that end in .conf", false},
	{"/etc/systemd/*.conf.d", dotConf, "systemd reads names that end in .conf there", false},
	{"/etc/security/limits.d", dotConf, "pam_limits(8) reads names that end in .conf", false},
	{"/etc/ssh/sshd_config.d", dotConf, "sshd_config of Debian includes names that end in .conf", false},
	{"/etc/ld.so.conf.d", dotConf, "ldconfig(8) reads names that end in .conf", false},
	{"/etc/rsyslog.d", dotConf, "rsyslog.conf of Debian includes names that end in .conf", false},
	{"/etc/profile.d", ending(".sh"), "/etc/profile of Debian reads names that end in .sh", false},
	{"/etc/udev/rules.d", ending(".rules"), "udev(7) reads names that end in .rules", false},
	{"/etc/systemd/network", ending(".network", ".netdev", ".link"),
		"systemd reads names that end in .network, .netdev or .link there", false},
	{"/etc/apt/sources.list.d", ending(".list", ".sources"), "sources.list(5) reads names that end in .list or .sources", false},
	{"/etc/logrotate.d", func(name string) bool { return !taboo.MatchString(name) },
		"logrotate(8) passes over endings of copies, such as .bak, .old and ~", false},
}

func ending(of ...string) func(string) bool {
	return func(name string) bool {
		return slices.ContainsFunc(of, func(end string) bool { return strings.HasSuffix(name, end) })
	}
}

// passedOver says why the program that reads the directory of a file passes over it, ""
// where it reads it, or where its rule is not known.
func passedOver(file string, mode rules.Mode) string {
	dir, name := path.Split(file)
	for _, r := range directories {
		switch match, err := path.Match(r.dir, path.Clean(dir)); {
		case err != nil || !match: // the patterns are valid
		case !r.reads(name):
			return r.how
		case r.runs && mode.Apply(0o644, false)&0o100 == 0:
			return "run-parts(8) runs only what may be executed"
		}
	}
	return ""
}

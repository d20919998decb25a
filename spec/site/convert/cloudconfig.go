// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"encoding/base64"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode"

	"github.com/caisson-os/caisson/internal/plain"
	"github.com/caisson-os/caisson/spec/site/report"
	"github.com/caisson-os/caisson/spec/site/tree"
)

// cloudReasons say where a site has what cloud-config says elsewhere.
var cloudReasons = map[string]string{
	"hostname": "a node's name is that in nodes", "fqdn": "a node's name is that in nodes",
	"ntp": "write network.ntp", "ca_certs": "write machine.cas", "ca-certs": "write machine.cas", "apt": "write conf.apt.repositories",
	"runcmd": "write conf.exec: a script has a policy there", "bootcmd": "write conf.exec: a script has a policy there",
	"package_update": "packages are resolved when the layer is built", "package_upgrade": "packages are resolved when the layer is built",
	"ssh_authorized_keys": "they are of the image's default user: write them to a user", "disable_root": "root has no password in a layer",
	"network":  "write network.interfaces",
	"growpart": "a site grows no partitions", "resize_rootfs": "a site grows no file systems", "swap": "a site makes no swap files",
}

// readCloudConfig reads the YAML of cloud-init.
func readCloudConfig(r *reading) {
	v := r.document()
	r.entries(v, "users", r.cloudUser)
	r.entries(v, "packages", func(p *tree.Value) {
		value := map[string]any{}
		switch {
		case p.Kind == tree.Scalar:
			value["name"] = p.Text
		case len(p.List) == 2 && p.List[0].Kind == tree.Scalar:
			value["name"], value["version"] = p.List[0].Text, p.List[1].Text
		default:
			r.miss(line(p), "packages", "it is neither a name nor a name and a version")
			return
		}
		r.take(line(p), "package "+value["name"].(string), "apt", "package "+value["name"].(string), []string{"packages", "+"}, value)
	})
	r.entries(v, "write_files", r.cloudFile)
	r.entries(v, "mounts", func(m *tree.Value) {
		fields := plain.Each(m.List, func(f *tree.Value) string { return strings.ReplaceAll(f.Text, " ", `\040`) })
		if len(m.List) == 0 || slices.ContainsFunc(m.List, func(f *tree.Value) bool { return f.Text == "" }) {
			r.miss(line(m), "mounts", "it takes a mount away, or leaves a field empty")
			return
		}
		blank := func(c rune) bool { return c != ' ' && unicode.IsSpace(c) }
		if strings.HasPrefix(fields[0], "#") || slices.ContainsFunc(fields, func(f string) bool { return strings.ContainsFunc(f, blank) }) {
			r.miss(line(m), "mounts", "fstab has a comment there, or more fields or lines")
			return
		}
		in := &reading{name: r.name, data: strings.Join(fields, " ")}
		readFstab(in)
		for _, p := range in.items {
			p.Line.Line = line(m)
		}
		r.items = append(r.items, in.items...)
	})
	r.rest(v, "", cloudReasons, "users", "packages", "write_files", "mounts")
}

func (r *reading) cloudUser(u *tree.Value) {
	if u.Kind == tree.Scalar {
		r.miss(line(u), "user "+u.Text, "only the image knows who that is")
		return
	}
	name := text(u, "name")
	for _, key := range []string{"expiredate", "inactive"} {
		if u.Get(key) != nil {
			r.miss(line(u), "user "+name, "it has "+key+", and accounts of a site do not expire by a date")
			return
		}
	}
	a := account{name: name, uid: text(u, "uid"), shell: text(u, "shell"),
		keys: r.texts(u, "ssh_authorized_keys"), groups: r.words(u, "groups")}
	if hash := first(u, "hashed_passwd", "passwd"); hash != "" && untrue(u.Get("lock_passwd")) {
		a.password = hash
	} else if hash != "" {
		a.without = append(a.without, "its password, which is locked unless lock_passwd is false")
	}
	if v := u.Get("ssh_redirect_user"); v != nil && !untrue(v) {
		a.keys, a.without = nil, append(a.without, "its keys, which ssh_redirect_user sends to another user")
	}
	a.sudo, a.without = cloudSudo(u.Get("sudo"), a.without)
	r.account(line(u), a)
	r.rest(u, "user "+name, map[string]string{
		"plain_text_passwd": "a site has hashes: mkpasswd makes one", "ssh_import_id": "an import fetches nothing: write the keys",
		"gecos": "accounts have no comment",
	}, "name", "passwd", "hashed_passwd", "lock_passwd", "uid", "shell", "ssh_authorized_keys", "ssh_redirect_user", "groups", "sudo")
}

var falseWord = regexp.MustCompile(`^(false|False|FALSE|no|No|NO|off|Off|OFF|0)$`)

// untrue reports whether a value is a false one for cloud-init, to which any text but an
// empty one is true, 'false' in quotes too.
func untrue(v *tree.Value) bool {
	return v != nil && (v.Kind == tree.Null || v.Plain && falseWord.MatchString(v.Text))
}

// anyCommand is the one rule of sudoers(5) that user_sudo stands for.
var anyCommand = regexp.MustCompile(`^\s*ALL\s*=\s*\(\s*ALL\s*(:\s*ALL\s*)?\)\s*NOPASSWD\s*:\s*ALL\s*$`)

// cloudSudo reports whether a user may run every command as everybody without a
// password. Any other rule is left out and named.
func cloudSudo(v *tree.Value, without []string) (bool, []string) {
	if v == nil || v.Kind == tree.Null || v.Kind == tree.Scalar && (v.Text == "" || strings.EqualFold(v.Text, "false")) {
		return false, without
	}
	rules := v.List
	if v.Kind == tree.Scalar {
		rules = []*tree.Value{v}
	}
	all := len(rules) > 0
	for _, rule := range rules {
		if !anyCommand.MatchString(rule.Text) {
			all = false
			without = append(without, fmt.Sprintf("the rule of sudo %q: write it to a file below /etc/sudoers.d", report.Printable(rule.Text, 80)))
		}
	}
	return all, without
}

func (r *reading) cloudFile(f *tree.Value) {
	out := file{path: text(f, "path"), content: text(f, "content"), mode: octal(f, "permissions"), appends: truth(f, "append")}
	what := "file " + out.path
	if c := f.Get("content"); c != nil && len(c.List)+len(c.Fields) > 0 {
		r.miss(line(f), what, "its content is not a text")
		return
	}
	if f.Get("source") != nil {
		r.miss(line(f), what, "its content is at "+text(f.Get("source"), "uri")+": an import fetches nothing")
		return
	}
	r.rest(f, what, map[string]string{"defer": "files are there before services start"}, "path", "content",
		"permissions", "owner", "encoding", "append")
	out.owner, out.group, _ = strings.Cut(text(f, "owner"), ":")
	switch encoding := text(f, "encoding"); encoding {
	case "", "text/plain":
	case "b64", "base64":
		raw, err := base64.StdEncoding.DecodeString(out.content)
		if err != nil {
			r.miss(line(f), what, err.Error())
			return
		}
		out.content = string(raw)
	default:
		r.miss(line(f), what, "its content is compressed ("+encoding+")")
		return
	}
	r.file(line(f), out)
}

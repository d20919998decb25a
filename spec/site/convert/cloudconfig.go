// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"encoding/base64"
	"strings"

	"github.com/caisson-os/caisson/spec/site/tree"
)

// cloudReasons say where a site has what cloud-config says elsewhere.
var cloudReasons = map[string]string{
	"hostname": "a node's name is that in nodes", "fqdn": "a node's name is that in nodes",
	"ntp": "write network.ntp", "ca_certs": "write machine.cas", "ca-certs": "write machine.cas", "apt": "write conf.apt.repositories",
	"runcmd": "write conf.exec: a script has a policy there", "bootcmd": "write conf.exec: a script has a policy there",
	"package_update": "packages are resolved when the layer is built", "package_upgrade": "packages are resolved when the layer is built",
	"ssh_authorized_keys": "they are of the image's default user: write them to a user", "disable_root": "root has no password in a layer",
	"growpart": "a site grows no partitions", "resize_rootfs": "a site grows no file systems", "swap": "a site makes no swap files",
}

// readCloudConfig reads the YAML of cloud-init.
func readCloudConfig(r *reading) {
	v := r.document()
	entries(v, "users", func(u *tree.Value) { r.cloudUser(u) })
	entries(v, "packages", func(p *tree.Value) {
		value := map[string]any{}
		switch {
		case p.Kind == tree.Scalar:
			value["name"] = p.Text
		case len(p.List) == 2:
			value["name"], value["version"] = p.List[0].Text, p.List[1].Text
		default:
			r.miss(line(p), "packages", "it is neither a name nor a name and a version")
			return
		}
		r.take(line(p), "package "+value["name"].(string), "apt", "package "+value["name"].(string), []string{"packages", "+"}, value)
	})
	entries(v, "write_files", func(f *tree.Value) { r.cloudFile(f) })
	entries(v, "mounts", func(m *tree.Value) {
		var fields []string
		for _, f := range m.List {
			fields = append(fields, strings.ReplaceAll(f.Text, " ", `\040`))
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
	sudo := u.Get("sudo")
	name := text(u, "name")
	r.account(line(u), account{name: name, password: text(u, "passwd") + text(u, "hashed_passwd"), uid: text(u, "uid"), shell: text(u, "shell"),
		keys: texts(u, "ssh_authorized_keys"), groups: texts(u, "groups"), sudo: sudo != nil && sudo.Kind != tree.Null && sudo.Text != "false"})
	r.rest(u, "user "+name, map[string]string{
		"plain_text_passwd": "a site has hashes: mkpasswd makes one", "ssh_import_id": "an import fetches nothing: write the keys",
		"lock_passwd": "without a hash nobody logs in by password", "gecos": "accounts have no comment",
	}, "name", "passwd", "hashed_passwd", "uid", "shell", "ssh_authorized_keys", "groups", "sudo")
}

func (r *reading) cloudFile(f *tree.Value) {
	out := file{path: text(f, "path"), content: text(f, "content"), appends: text(f, "append") == "true"}
	if mode := text(f, "permissions"); mode != "" {
		out.mode = octal(mode, false)
	}
	out.owner, out.group, _ = strings.Cut(text(f, "owner"), ":")
	switch encoding := text(f, "encoding"); encoding {
	case "", "text/plain":
	case "b64", "base64":
		raw, err := base64.StdEncoding.DecodeString(out.content)
		if err != nil {
			r.miss(line(f), "file "+out.path, err.Error())
			return
		}
		out.content = string(raw)
	default:
		r.miss(line(f), "file "+out.path, "its content is compressed ("+encoding+")")
		return
	}
	r.file(line(f), out)
}

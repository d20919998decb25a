// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/caisson-os/caisson/spec/site/convert/coverage"
)

// drawn is a document that is drawn, with what its entries say.
type drawn struct {
	*rand.Rand
	form    string // cloud-config, butane, ignition
	text    strings.Builder
	line    int
	entries map[int][]string // line → the words of its entry, each of which has to be in the site, or the line has a reason
	most    map[string]right // of accounts
	files   map[string]string
	modes   map[string]string
	mounts  map[string]string // target → options
	units   map[string]string
}

// right is the most that an account may do.
type right struct {
	sudo, password, keys bool
	groups               []string
}

func (d *drawn) pick(of ...string) string { return of[d.IntN(len(of))] }

// put adds a line, with the words of an entry.
func (d *drawn) put(text string, words ...string) {
	d.line++
	fmt.Fprintln(&d.text, text)
	if words = slices.DeleteFunc(words, func(w string) bool { return w == "" }); len(words) > 0 {
		d.entries[d.line] = words
	}
}

// list adds up to three entries below keys, as each form writes lists.
func (d *drawn) list(outer, key string, entry func(n int) (text string, words []string)) {
	end := ""
	switch {
	case d.form == "ignition":
		d.put(`"` + outer + `":{"` + key + `":[`)
		end = "]},"
	case outer == "":
		d.put(key + ":")
	default:
		d.put(outer + ":")
		d.put(" " + key + ":")
	}
	for n, all := 0, d.IntN(4); n < all; n++ {
		text, words := entry(n)
		if d.form != "ignition" {
			text = " - " + text
		} else if n < all-1 {
			text += ","
		}
		d.put(text, words...)
	}
	if end != "" {
		d.put(end)
	}
}

const (
	drawnHash = "$6$abcdefgh$bcdefghibcdefghibcdefghibcdefghibcdefghibcdefghibcdefghibcdefghibcdefghibcdefghibcdef."
	drawnKey  = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ1fJdpJzNxpv1vQbrYDYKBnVdqqDkfd3rPa0OBXVeCQ a"
)

// cloudUser is an account of cloud-config.
func (d *drawn) cloudUser(n int) (string, []string) {
	name := fmt.Sprintf("u%d", n)
	sudo := d.pick("", "null", "false", "''", "[]", "'ALL=(ALL) NOPASSWD:ALL'", "['ALL=(ALL:ALL) NOPASSWD: ALL']", "'ALL=(ALL) ALL'",
		"'ALL=(root) NOPASSWD:ALL'", "['ALL=(ALL) NOPASSWD:ALL', 'ALL=(ALL) !/bin/su']", "'ALL=NOPASSWD: /bin/true'")
	lock, ends, redirect := d.pick("", "true", "false", "'false'", "no", "'no'", "n", "off", "0", "''", "null"), d.pick("", "", ", inactive: 5"), d.pick("", "", ", ssh_redirect_user: true")
	password, keys := d.pick("", ", passwd: '"+drawnHash+"'"), d.pick("", ", ssh_authorized_keys: ['"+drawnKey+"']")
	groups := d.pick("", ", groups: 'sudo, adm'", ", groups: [wheel]")
	text := "{name: " + name + ends + redirect + password + keys + groups + d.pick("", ", homedir: /srv", ", primary_group: adm")
	if sudo != "" {
		text += ", sudo: " + sudo
	}
	if lock != "" {
		text += ", lock_passwd: " + lock
	}
	most := right{sudo: ends == "" && (sudo == "'ALL=(ALL) NOPASSWD:ALL'" || sudo == "['ALL=(ALL:ALL) NOPASSWD: ALL']"),
		password: ends == "" && password != "" && slices.Contains([]string{"false", "no", "off", "0", "null"}, lock), keys: ends == "" && keys != "" && redirect == ""}
	if strings.Contains(groups, "adm") {
		most.groups = []string{"sudo", "adm"}
	}
	d.most[name] = most
	return text + "}", []string{name}
}

// ignitionUser is one of Ignition or butane.
func (d *drawn) ignitionUser(n int) (string, []string) {
	name := fmt.Sprintf("u%d", n)
	exists, password := d.pick("", `, "should_exist": true`, `, "should_exist": false`), d.pick("", `, "password_hash": "`+drawnHash+`"`)
	keys, groups := d.pick("", `, "ssh_authorized_keys": ["`+drawnKey+`"]`), d.pick("", `, "groups": ["wheel", "sudo"]`, `, "groups": ["adm"]`)
	text := `{"name": "` + name + `"` + exists + password + keys + groups + d.pick("", `, "home_dir": "/srv"`, `, "no_create_home": true`, `, "primary_group": "adm"`) + "}"
	if is := !strings.Contains(exists, "false"); is {
		d.most[name] = right{password: password != "", keys: keys != ""}
		if groups != "" {
			d.most[name] = right{password: password != "", keys: keys != "", groups: []string{"sudo", "adm"}}
		}
	}
	return d.spelled(text), []string{name}
}

// spelled writes the keys of butane as Ignition does.
func (d *drawn) spelled(text string) string {
	if d.form != "ignition" {
		return text
	}
	return strings.NewReplacer("should_exist", "shouldExist", "password_hash", "passwordHash", "ssh_authorized_keys", "sshAuthorizedKeys", "home_dir", "homeDir",
		"no_create_home", "noCreateHome", "primary_group", "primaryGroup", "mount_options", "mountOptions").Replace(text)
}

// file is a file of any form.
func (d *drawn) file(n int) (string, []string) {
	path, word := fmt.Sprintf("/etc/f%d", n), fmt.Sprintf("text%d", n)
	forms := map[string]map[string]string{
		"cloud-config": {"text": "content: " + word, "empty": "content: ''", "append": "append: true, content: " + word, "far": "source: {uri: 'https://example.org'}", "packed": "encoding: gzip, content: " + word,
			"base64": "encoding: b64, content: dGV4dA=="},
		"butane":   {"text": "contents: {inline: " + word + "}", "empty": "contents: {inline: ''}", "append": "append: [{inline: x}]", "far": "contents: {source: 'https://example.org'}", "none": "contents: {}", "beside": "contents: {local: " + word + "}"},
		"ignition": {"text": `"contents": {"source": "data:,` + word + `"}`, "empty": `"contents": {"source": "data:,"}`, "append": `"append": [{"source": "data:,x"}]`, "far": `"contents": {"source": "https://example.org"}`, "none": `"contents": {}`, "base64": `"contents": {"source": "data:;base64,dGV4dA=="}`, "packed": `"contents": {"compression": "gzip", "source": "data:,x"}`},
	}[d.form]
	form := d.pick("text", "text", "empty", "append", "far", "none", "packed", "base64", "beside")
	content := map[string]string{"text": word, "empty": "", "base64": "text"}
	if taken, ok := content[form]; ok && forms[form] != "" || forms[form] == "" && d.form == "cloud-config" { // which makes an empty file
		d.files[path] = taken
	}
	mode, words := d.pick("", "0600", "0644", "4755"), []string{path}
	text := "path: " + path
	if d.form == "ignition" {
		text = `"path": "` + path + `"`
	}
	if forms[form] != "" {
		text += ", " + forms[form]
	}
	if mode != "" {
		var number int
		_, _ = fmt.Sscanf(mode, "%o", &number) // one of three above
		text += map[string]string{"cloud-config": ", permissions: '" + mode + "'", "butane": ", mode: 0" + mode, "ignition": fmt.Sprintf(`, "mode": %d`, number)}[d.form]
	}
	d.modes[path] = mode
	return "{" + text + "}", words
}

// mount is a mount of cloud-config, or a file system of the others.
func (d *drawn) mount(n int) (string, []string) {
	device, target := fmt.Sprintf("/dev/vd%c", 'b'+n), fmt.Sprintf("/srv/m%d", n)
	options := d.pick("", "ro,noexec", "nosuid")
	if d.form == "cloud-config" {
		kind := d.pick(device+", "+target+", ext4, '"+options+"'", device+", null", device+", "+target)
		if strings.Contains(kind, "ext4") {
			d.mounts[target] = options
		}
		return "[" + kind + "]", []string{device}
	}
	text := `{"device": "` + device + `", "path": "` + target + `", "format": "ext4"`
	if options != "" {
		text += `, "mount_options": ["` + strings.ReplaceAll(options, ",", `", "`) + `"]`
	}
	if d.form == "butane" && d.IntN(2) == 0 {
		text += ", with_mount_unit: true"
		d.mounts[target] = options
	}
	return d.spelled(text) + d.pick("", `, "label": "x"`, `, "wipe_filesystem": true`) + "}", []string{device}
}

// unit is a unit of Ignition or butane.
func (d *drawn) unit(n int) (string, []string) {
	name, word, drop := fmt.Sprintf("u%d.service", n), fmt.Sprintf("Nice=%d", n+1), fmt.Sprintf("Nice=1%d", n)
	text, words := `{"name": "`+name+`"`, []string{name}
	if d.IntN(2) == 0 {
		text, words = text+`, "contents": "[Service]\n`+word+`\n"`, append(words, word)
		d.units[name] = "[Service]\n" + word + "\n"
	}
	if d.IntN(2) == 0 {
		text, words = text+`, "dropins": [{"name": "10-x.conf", "contents": "[Service]\n`+drop+`\n"}]`, append(words, drop)
	}
	return text + d.pick("", `, "enabled": true`, `, "enabled": false`, `, "mask": true`) + "}", words
}

// draw makes a document of one of the forms.
func draw(r *rand.Rand) *drawn {
	d := &drawn{Rand: r, entries: map[int][]string{}, most: map[string]right{}, files: map[string]string{}, modes: map[string]string{}, mounts: map[string]string{}, units: map[string]string{}}
	switch d.form = d.pick("cloud-config", "butane", "ignition"); d.form {
	case "cloud-config":
		d.put("#cloud-config")
		d.list("", "users", d.cloudUser)
		d.put("groups: [ops, {own: [u0]}]", "groups")
		d.list("", "write_files", d.file)
		d.list("", "mounts", d.mount)
		return d
	case "butane":
		d.put("variant: fcos")
	default:
		d.put(`{"ignition":{"version":"3.4.0"},`)
	}
	d.list("passwd", "users", d.ignitionUser)
	switch d.IntN(3) { // a document has each key once
	case 0:
		d.list("storage", "files", d.file)
	case 1:
		d.list("storage", "filesystems", d.mount)
	}
	d.list("systemd", "units", d.unit)
	if d.form == "ignition" {
		d.put(`"kernelArguments":{"shouldNotExist":["quiet"]}}`, "quiet")
	} else {
		d.put("kernel_arguments: {should_not_exist: [quiet]}", "quiet")
	}
	return d
}

// TestRightsDoNotGrow imports documents that are drawn: no account gains a right or a group, no
// file, mount or unit has another content, mode or options, and no word of an entry goes without a reason.
func TestRightsDoNotGrow(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 1000 {
		d := draw(random)
		r, err := Import([]File{{Name: "f", Data: []byte(d.text.String())}})
		if err != nil {
			t.Fatalf("%v:\n%s", err, d.text.String())
		}
		made, err := json.Marshal(r.Parts())
		if err != nil {
			t.Fatal(err)
		}
		for at, words := range d.entries {
			lines, why := 0, ""
			for _, l := range r.Coverage {
				if l.Line == at {
					lines, why = lines+1, why+l.Why
				}
			}
			if lines == 0 {
				t.Fatalf("line %d is in no line of the coverage:\n%s", at, d.text.String())
			}
			for _, w := range words {
				if why == "" && !strings.Contains(string(made), w) {
					t.Fatalf("line %d: %s has gone without a reason:\n%s\n%s", at, w, d.text.String(), made)
				}
			}
		}
		d.holds(t, r)
	}
}

// part is a part of the values.
func part(r *coverage.Result, name string) map[string]map[string]any {
	all := map[string]map[string]any{}
	of, _ := r.Conf[name].(map[string]any)
	for key, v := range of {
		all[key], _ = v.(map[string]any)
	}
	return all
}

// holds holds what was taken to what the document says.
func (d *drawn) holds(t *testing.T, r *coverage.Result) {
	t.Helper()
	users, _ := r.Conf["uamlite"].(map[string]any)
	list, _ := users["users"].([]any)
	for _, u := range list {
		u := u.(map[string]any)
		most, known := d.most[u["user_name"].(string)]
		_, password := u["user_crypt_passwd"]
		_, keys := u["user_sshkeys"]
		_, sudo := u["user_sudo"]
		groups, _ := u["user_groups"].([]any)
		more := slices.ContainsFunc(groups, func(g any) bool { return !slices.Contains(most.groups, g.(string)) })
		if !known || more || sudo != most.sudo || password != most.password || keys != most.keys {
			t.Fatalf("%v, want %+v:\n%s", u, most, d.text.String())
		}
	}
	for path, f := range part(r, "files") {
		content, may := d.files[path]
		mode, _ := f["mode"].(string)
		if !may || f["content"] != content || strings.TrimPrefix(mode, "0") != strings.TrimPrefix(d.modes[path], "0") {
			t.Fatalf("%s has %v, want %q, %s:\n%s", path, f, content, d.modes[path], d.text.String())
		}
	}
	for _, m := range part(r, "mounts") {
		options, _ := m["options"].(string)
		if want, may := d.mounts[m["mnt_tgt"].(string)]; may && options != want {
			t.Fatalf("%v, want %q:\n%s", m, want, d.text.String())
		} else if !may && d.form != "cloud-config" { // there a row of two fields has defaults
			t.Fatalf("%v is not mounted there:\n%s", m, d.text.String())
		}
	}
	for name, u := range part(r, "units") {
		if content, taken := u["content"]; taken && content != d.units[name] {
			t.Fatalf("%s has %v, want %q:\n%s", name, u, d.units[name], d.text.String())
		}
	}
}

// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"testing"

	"filippo.io/age"

	"github.com/caisson-os/caisson/test/leak"
	"github.com/caisson-os/caisson/test/require"
)

// secretHost publishes secrets to a registry and applies them, and keeps all that both
// programs have written, said and been called with.
const secretHost = ownHost + `
cp "$GIVEN"/*.age "$GIVEN"/operator.txt .
chmod 600 operator.txt
while sleep 0.05; do cat /proc/[0-9]*/cmdline 2>/dev/null || true; done >"$KEPT"/arguments &
sampler=$!
tell() { "$@" >>"$KEPT"/said 2>&1; }
site() {
	cat >site.yaml <<-END
	apiVersion: caisson.dev/v1alpha1
	kind: Site
	metadata: {name: metal-a}
	registry: oci:out
	nodes: [{name: superhost}]
	secrets:
	  db: {file: $1}
	  token: {command: [cat, $GIVEN/token]}
	conf:
	  files:
	    /etc/app/db: {secret: db, group: daemon, mode: "0440"}
	    /etc/app/conf: {content: "password-file=/run/caisson/secret/db\n"}
	  exec:
	    join:
	      rerun_policy: once_successfully
	      env: {TOKEN: {secret: token}}
	      data: |
	        #!/bin/sh
	        printf %s "\$TOKEN" | cmp - $GIVEN/token && echo "\$TOKEN" && echo ran >>/srv/joined
	  units:
	    app.service:
	      dropIns: {token: "[Service]\nLoadCredential=token:/run/caisson/secret/token\n"}
	END
}
publish() { tell caisson publish site.yaml --to oci:out --key keys/operator.key --identity operator.txt; }
is() {
	caisson-agent status -o json >status.json || test $? = 3 # not ok
	cat status.json >>"$KEPT"/said
	grep -q "$1" status.json
}
site db.age
publish
caisson serve oci:out --listen 127.0.0.1:5001 &
serve=$!
await tell caisson-agent enroll --from 127.0.0.1:5001 --fleet metal-a --key keys/operator.pub

# Nobody has accepted it: it is well, and does without.
tell caisson-agent apply
is '"health": "ok"'
is '"reason": "no key"'
not test -e /etc/app
not test -e /srv/joined
recipient() { caisson-agent status | sed -n 's/^recipient *//p'; }
recipient | grep ^age1
first=$(recipient)

tell caisson secrets accept site.yaml superhost --recipient $first
tell caisson plan site.yaml --from oci:out || test $? = 3
tell caisson plan site.yaml --from oci:out --identity operator.txt --run-commands -o json || test $? = 3
publish
tell caisson-agent sync
test "$(findmnt -no FSTYPE /run/caisson/secret)" = ramfs
test "$(stat -c '%a %U' /run/caisson/secret)" = '711 root'
test "$(stat -c '%a %U' /run/caisson/secret/db)" = '400 root'
test "$(stat -Lc '%a %G' /etc/app/db)" = '440 daemon'
cmp /etc/app/db "$GIVEN"/db
cmp /run/caisson/secret/token "$GIVEN"/token
grep LoadCredential=token /etc/systemd/system/app.service.d/*
test "$(cat /srv/joined)" = ran
not is '"action": "cannot"'

# What only looks changes nothing, and the same again changes no generation.
cp secrets.lock before.lock
publish
cmp secrets.lock before.lock
tell caisson-agent sync
test "$(cat /srv/joined)" = ran

# A boot of an attached host: memory is empty, and the agent opens all of it again.
umount /run/caisson/secret
rm -rf /run/caisson
tell caisson-agent apply
cmp /etc/app/db "$GIVEN"/db
test "$(findmnt -no FSTYPE /run/caisson/secret)" = ramfs

# Another value takes the place of the first, everywhere.
site other.age
publish
tell caisson-agent sync
cmp /etc/app/db "$GIVEN"/other
not grep -rq -f "$GIVEN"/db /run/caisson /etc/app /var/lib/caisson
tell caisson diff oci:out 2 3 --site site.yaml || true
tell caisson history oci:out --site site.yaml
tell caisson explain site.yaml --node superhost
tell caisson inspect oci:out --node superhost --site site.yaml || true

# The node's disk is another one: it makes a new key, and what is sealed to the old one is
# nobody's.
rm -rf /var/lib/caisson/identity
tell caisson-agent apply || test $? = 1
not test "$(recipient)" = $first
is "sealed to $first, which is not this node's key"
is '"health": "degraded"'
caisson-agent why | grep -F "caisson secrets accept SITE superhost --recipient $(recipient) --replace; then publish"
not test -e /etc/app/db
not test -e /run/caisson/secret/db
not tell caisson secrets accept site.yaml superhost --recipient $(recipient)
tell caisson secrets accept site.yaml superhost --recipient $(recipient) --replace
publish
tell caisson-agent sync
cmp /etc/app/db "$GIVEN"/other

# The key is damaged: it is set aside, and another one can be made and rotated.
echo x >/var/lib/caisson/identity/secrets.key
caisson-agent recipient 2>&1 | grep -F "'caisson-agent apply' sets it aside"
tell caisson-agent recipient rotate
test -e /var/lib/caisson/identity/secrets.key.damaged-1
test -e /var/lib/caisson/identity/secrets.next.key
tell caisson-agent apply || test $? = 1
is '"health": "degraded"'
tell caisson secrets accept site.yaml superhost --recipient $(recipient) --replace
publish
tell caisson-agent sync
is '"health": "ok"'
cmp /etc/app/db "$GIVEN"/other

# A cut between the two locks: the node is forgotten, and its rows are still there.
cp secrets.lock rows.lock
tell caisson secrets forget site.yaml superhost
cp rows.lock secrets.lock
publish
tell caisson-agent sync
not test -e /etc/app/db
test -z "$(ls -A /run/caisson/secret | grep -v '^\.files$')"
is '"reason": "no key"'
is '"health": "ok"'

# Everything once more, for what is kept in the end.
tell caisson secrets accept site.yaml superhost --recipient $(recipient)
publish
tell caisson-agent sync
tell caisson-agent report
tell caisson-agent why
tell caisson-agent logs || true
tell caisson-agent plan || test $? = 3
kill $sampler $serve
tar cf "$KEPT"/site.tar --exclude ./up --exclude ./work -C /mnt .
tar cf "$KEPT"/state.tar --exclude log -C /var/lib/caisson .
tar cf "$KEPT"/run.tar --exclude ./secret -C /run/caisson .
tar cf "$KEPT"/etc.tar -C /mnt/up/etc .
`

// No place but the node's memory has a secret: not the registry, the locks, the state, the
// journal, what the programs print, or their arguments.
func TestSecretsLeaveNothingInNamespaces(t *testing.T) {
	require.Tool(t, "findmnt", "tar")
	t.Parallel()
	given, kept := t.TempDir(), t.TempDir()
	key, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	write := func(name string, data []byte) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(given, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("operator.txt", []byte(key.String()+"\n"))
	values := map[string]string{}
	for _, name := range []string{"db", "other", "token"} {
		values[name] = leak.Value()
		write(name, []byte(values[name]))
		var sealed bytes.Buffer
		w, err := age.Encrypt(&sealed, key.Recipient())
		if err == nil {
			_, err = io.WriteString(w, values[name])
		}
		if err == nil {
			err = w.Close()
		}
		if err != nil {
			t.Fatal(err)
		}
		write(name+".age", sealed.Bytes())
	}
	out := inNamespaces(t, secretHost, "GIVEN="+given, "KEPT="+kept)
	if err := os.WriteFile(filepath.Join(kept, "output"), []byte(out), 0o600); err != nil {
		t.Fatal(err)
	}
	places := map[string][]byte{}
	for _, name := range []string{"output", "said", "arguments", "site.tar", "state.tar", "run.tar", "etc.tar"} {
		data, err := os.ReadFile(filepath.Join(kept, name))
		if err != nil || len(data) == 0 {
			t.Fatalf("%s: %d bytes, %v", name, len(data), err)
		}
		places[name] = data
	}
	for place, data := range places {
		found, err := leak.Find(bytes.NewReader(data), values)
		if err != nil || found != nil {
			t.Errorf("%s has %q, %v", place, found, err)
		}
	}
	for place, has := range map[string]string{"site.tar": "age-encryption.org/v1", "state.tar": "AGE-SECRET-KEY-1", "run.tar": "superhost", "arguments": "publish", "etc.tar": "password-file="} {
		if !bytes.Contains(places[place], []byte(has)) { // what is searched must be there
			t.Errorf("%s has no %s", place, has)
		}
	}
}

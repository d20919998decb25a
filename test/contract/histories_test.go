// SPDX-License-Identifier: Apache-2.0

package contract

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caisson-os/caisson/bootagent/record/takeover"
)

// histories are scripts as a values file has them, and the names under which Divingbell
// kept their runs: printed by sigs.k8s.io/yaml v1.3.0 and sprig v3.2.3, which Helm 3.9
// reads and prints values with.
var histories = map[string]struct{ values, hash string }{
	"a boolean word": {`data: |
  #!/bin/bash
  echo hello
rerun_policy: never
env: {DEBUG: yes, TRACE: off, X: True}
`, "0df60468683c35c51d56705bea9d3529d41c93940aa73f22d874ed24c421fc31"},
	"a boolean word in args": {`data: |
  #!/bin/bash
  echo hello
rerun_policy: never
args: [on, 'no']
`, "8b76030f9fcdd1ee644b7d2dc87e4fa79741d82c79197cec711b593531df5f5c"},
	"a date": {`data: |
  #!/bin/bash
  echo hello
rerun_policy: never
env: {A: 2020-01-01, B: 12:30}
`, "47455119c7b0bad0a03783ce5748511caf8f4854df490423db43ecd59a2e5a5e"},
	"a float": {`data: |
  #!/bin/bash
  echo hello
rerun_policy: never
env: {A: 1.50, B: 0.00001, C: 1e3, D: 1.0}
`, "9d38d8b5f88b305049c1484990e201c60c4a2b9e68f18a5e25285100bd810e6b"},
	"a large number in args": {`data: |
  #!/bin/bash
  echo hello
rerun_policy: never
args: [--max, 20000000]
`, "668a9ee4b5c254715cfdc7af0336200ac6fc87d04c9b3795521a30529d998858"},
	"a large number in env": {`data: |
  #!/bin/bash
  echo hello
rerun_policy: never
env: {MAX: 1048576, MIN: 999999}
`, "c4c4b08d6f0cdca39c8485f0b2f9f8f8e0f797476f2a2283f6e7092a8edcc98b"},
	"a large number in quotes": {`data: |
  #!/bin/bash
  echo hello
rerun_policy: never
env: {MAX: '1048576'}
`, "e76781e4d19c3e074f64676061f1e35013301e119e1a351a2fdf3b1d230b7776"},
	"a null": {`data: |
  #!/bin/bash
  echo hello
rerun_policy: never
env: {A: null, B: ~, C: x}
`, "65a25e204730198232755dbcbe740b9ea9d6423e94228f0fe131ba6b5a143a4b"},
	"a timeout of a million": {`data: |
  #!/bin/bash
  echo hello
rerun_policy: never
timeout: 1000000
`, "387fbefe4894d1a0e93cbccaf209efadf3324d9c9a4f10ea5184dc63bc17629d"},
	"all policies": {`data: |
  #!/bin/bash
  echo hello
rerun_policy: always
blocking_policy: foreground_halt_pod_on_failure
timeout: 60
rerun_interval: 31536000
retry_interval: 1000000
`, "82ffa055e4bfda343750e9edd7c8e420481581e2e759755b523fd3f21da15907"},
	"an octal and a hexadecimal number": {`data: |
  #!/bin/bash
  echo hello
rerun_policy: never
env: {A: 0640, B: 0x10, C: 1_000, D: 08}
`, "a47a15c2d99651b325ae24a8904249c0abb900effe069ea0cc8b6b0478579f74"},
	"both names of the usual timeout": {`data: |
  #!/bin/bash
  echo hello
rerun_policy: never
script_timeout: 1800
`, "f3a2ee3824cdd8b724f351549e46e77b0f26ce23e796154d5054f1e0fc233ec3"},
	"infinity": {`data: |
  #!/bin/bash
  echo hello
rerun_policy: always
rerun_interval: infinity
`, "d6213839117b32c967f8a0683c82cdf8bd51d9be9c8493d239326e35fbe89417"},
	"more than a float holds": {`data: |
  #!/bin/bash
  echo hello
rerun_policy: never
env: {A: 9007199254740993, B: -1234567}
`, "baad53c60425194016ced7bd3901546356ee9c5f8da7cb4fdd0a49e3b4100621"},
	"no interpreter, no arguments": {`data: |
  echo hello
rerun_policy: once_successfully
args: []
env: {}
`, "8d5721bf274f6722a40582a2968bc8d3743348841fec0589a07d5a4e98baf5af"},
	"plain": {`data: |
  #!/bin/bash
  echo hello
rerun_policy: never
`, "b0e9315baa622d58d0df475f68eccef15d39b3c5d2bcb95227bf3a024007d662"},
	"several lines": {`data: |
  #!/bin/bash
  echo hello
rerun_policy: never
env:
  A: |
    one
    two
  B: "it's \"quoted\""
args: ["a b", "c'd"]
`, "73bf82f8466499c57f885029af42720338da4055507a85b90a6f2b2cf44fdd9f"},
	"the manual's name": {`data: |
  #!/bin/bash
  echo hello
rerun_policy: never
script_timeout: 600
`, "2f3e648b372974fa341c4e92105662983cb34e2b33081c4316de45630ba8c538"},
}

// What ran under Divingbell does not run again, however its values were written.
func TestHistoriesOfHelm(t *testing.T) {
	for name, h := range histories {
		t.Run(name, func(t *testing.T) {
			p := &probe{T: t}
			values := strings.NewReplacer("null", "''", "~", "''").Replace(h.values) // an empty text is what the shell made of it
			list := p.items(hosts + "conf:\n  exec:\n    one.sh:\n      " + strings.ReplaceAll(strings.TrimSuffix(values, "\n"), "\n", "\n      ") + "\n").Exec
			root := t.TempDir()
			dir := filepath.Join(root, takeover.Records, "exec", h.hash)
			p.must(os.MkdirAll(dir, 0o755))
			for file, text := range map[string]string{"exit_code": "0\n", "last_run_timestamp": "1700000000\n", "../one.sh": "#!/bin/bash\n"} {
				p.must(os.WriteFile(filepath.Join(dir, file), []byte(text), 0o700))
			}
			found, err := takeover.Look(root)
			p.must(err)
			start, exit, ok := found.Ran(list[0])
			if !ok || exit != 0 || start.Unix() != 1700000000 || found.Doubt(list[0]) != "" {
				t.Errorf("%+v: %v, %v, exit %d, doubt %q", list[0], ok, start, exit, found.Doubt(list[0]))
			}
			other := list[0]
			other.Data += "# changed\n"
			if _, _, ok := found.Ran(other); ok || !strings.Contains(found.Doubt(other), "kept no run of one with these values") {
				t.Errorf("a changed one: %v, doubt %q", ok, found.Doubt(other))
			}
			other.Name = "two.sh"
			if doubt := found.Doubt(other); doubt != "" {
				t.Errorf("a new one: doubt %q", doubt)
			}
		})
	}
}

// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"os"
	"strings"
	"testing"
)

func TestPasswordHashes(t *testing.T) {
	const b53, c22, c43 = "N9qo8uLOickgx2ZMRZoMyeIjZAgcfl7p92ldGxad68LJZdL17lhWy", "abcdefghijklmnopqrstuv", "0123456789abcdefghijklmnopqrstuvwxyzABCDEF."
	for _, hash := range []string{
		"*", "!", "$1$saltsalt$4px9i58NU2Z2/vZOUlGjq.",
		"$5$saltsalt$hcyDOxdIg0p3xyqtpHh/v8Ph.am06tQaovp1KpEklb7",
		"$6$saltsalt$8RWsOfwR6M6PpnoeQiEiWzNTPo1f0HjVYjDnLZhGx16aBFRkeqiHAzfXP/LgrOWMBMXqiU2pLrXsSOHNUyUm91",
		"$6$rounds=656000$saltsalt$" + strings.Repeat("a", 86),
		"$2a$10$" + b53, "$2b$12$" + b53, "$2y$05$" + b53,
		"$y$j9T$" + c22 + "$" + c43, "$gy$j9T$" + c22 + "$" + c43, "$7$CU..../...." + c22 + "$" + c43,
	} {
		if problem, _ := HashProblem(hash); problem != "" {
			t.Errorf("%s: %s", hash, problem)
		}
	}
	for _, hash := range []string{
		"", "secret", "$6$", "$6$salt$short", "$6$salt$" + strings.Repeat("a", 85), "$6$salt$" + strings.Repeat("a", 87), "$6$sa:lt$" + strings.Repeat("a", 86),
		"x$6$saltsalt$" + strings.Repeat("a", 86), "$3$$x", "$2a$99$" + b53, "$2x$10$" + b53, "$y$j9T$" + c22 + "$" + c43 + "x", "abJnggxhB/yWI", "!!", "$6$salt$" + strings.Repeat("a", 86) + "\n",
	} {
		if problem, _ := HashProblem(hash); problem == "" {
			t.Errorf("%q is taken", hash)
		}
	}
	if _, weak := HashProblem("$1$saltsalt$4px9i58NU2Z2/vZOUlGjq."); weak != "MD5" {
		t.Errorf("MD5 is not called weak: %q", weak)
	}
}

func TestSSHKeys(t *testing.T) {
	text, err := os.ReadFile("testdata/keys/good") // as ssh-keygen wrote them
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	if len(lines) != 5 {
		t.Fatalf("%d keys", len(lines))
	}
	for _, line := range lines {
		f := strings.Fields(line)
		for _, good := range []string{line, f[0] + " " + f[1], "no-pty," + `command="echo \"a b\"",from="10.0.0.0/8" ` + line, f[0] + "\t" + f[1] + " a comment",
			`Restrict,NO-pty,environment="A=b,c",expiry-time="20300101",permitopen="h:1",cert-authority ` + line} {
			if problem := SSHKeyProblem(good); problem != "" {
				t.Errorf("%.60s: %s", good, problem)
			}
		}
		other := "ssh-ed25519"
		if f[0] == other {
			other = "ssh-rsa"
		}
		for _, bad := range []string{f[1], f[0], other + " " + f[1], f[0] + " " + f[1][:len(f[1])-8], f[0] + " " + f[1][:20] + " " + f[1][20:], f[0] + " " + f[1] + "AAAA", slack(line),
			line + "\n" + line, "a b " + line, "no-ptty " + line, "no-pty," + " " + line, "from=10.0.0.1 " + line, "no-pty,command " + line, `command="x"y ` + line, f[0] + " " + strings.Repeat("A", 40), "-----BEGIN OPENSSH PRIVATE KEY-----"} {
			if SSHKeyProblem(bad) == "" {
				t.Errorf("%q is taken", bad)
			}
		}
	}
}

// slack sets bits behind the end of a key, which sshd refuses, and so compares with no key.
func slack(line string) string {
	text, pad, padded := strings.Cut(strings.Fields(line)[1], "=")
	if !padded {
		return ""
	}
	const digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
	last := len(text) - 1
	return strings.Fields(line)[0] + " " + text[:last] + string(digits[strings.IndexByte(digits, text[last])+1]) + "=" + pad
}

// FuzzCredentials: keys and hashes of any bytes are judged without a panic, and
// a judgement does not depend on what surrounds a key.
func FuzzCredentials(f *testing.F) {
	f.Add("ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAICPETahEyllxaSmseT2t1YryzVztAMi7gzpQv6maqmbh x")
	f.Add(`command="a b",no-pty ssh-rsa AAAA x`)
	f.Add("ssh-rsa AAAAB3NzaC1yc2EAAAADAQABAAAAAQ==")
	f.Add("ecdsa-sha2-nistp256 AAAAE2VjZHNhLXNoYTItbmlzdHAyNTYAAAAIbmlzdHAyNTYAAAAA")
	f.Add("$6$salt$")
	f.Fuzz(func(t *testing.T, text string) {
		HashProblem(text)
		if SSHKeyProblem(text) == "" && SSHKeyProblem("no-pty "+text) != "" {
			if _, kind, _ := sshKeyFields("no-pty " + text); kind != "" {
				t.Errorf("%q is good alone only", text)
			}
		}
	})
}

// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"math/big"
	"regexp"
	"strconv"
	"strings"
)

// Password hashes, as in crypt(5), and SSH keys, as lines of authorized_keys in sshd(8), are parsed to
// the end, not matched at the beginning: a hash that lost its last character or a key that was pasted in
// half locks a user out, and that is better said before a layer is built. Nothing is verified against a
// password.

// hashForm is one method of crypt(5): what stands between and after the dollars.
type hashForm struct {
	form string // a regular expression: compiled, all of them are half a megabyte of each start
	weak string
}

var hashForms = map[string]hashForm{
	"1":  {`^\$1\$[^$:\s]{0,8}\$[./0-9A-Za-z]{22}$`, "MD5"},
	"2a": {`^\$2a\$(0[4-9]|[12][0-9]|3[01])\$[./A-Za-z0-9]{53}$`, ""},
	"2b": {`^\$2b\$(0[4-9]|[12][0-9]|3[01])\$[./A-Za-z0-9]{53}$`, ""},
	"2y": {`^\$2y\$(0[4-9]|[12][0-9]|3[01])\$[./A-Za-z0-9]{53}$`, ""},
	"5":  {`^\$5\$(rounds=[1-9][0-9]+\$)?[^$:\s]{1,16}\$[./0-9A-Za-z]{43}$`, ""},
	"6":  {`^\$6\$(rounds=[1-9][0-9]+\$)?[^$:\s]{1,16}\$[./0-9A-Za-z]{86}$`, ""},
	"7":  {`^\$7\$[./A-Za-z0-9]{11,97}\$[./A-Za-z0-9]{43}$`, ""},
	"y":  {`^\$y\$[./A-Za-z0-9]+\$[./A-Za-z0-9]{0,86}\$[./A-Za-z0-9]{43}$`, ""},
	"gy": {`^\$gy\$[./A-Za-z0-9]+\$[./A-Za-z0-9]{0,86}\$[./A-Za-z0-9]{43}$`, ""},
}

// HashProblem returns what is wrong with a password hash, or that it is weak.
func HashProblem(hash string) (problem, weak string) {
	if hash == "*" || hash == "!" {
		return "", ""
	}
	if hash == "" {
		return "an empty password would let anyone in", ""
	}
	parts := strings.SplitN(hash, "$", 3)
	if len(parts) < 3 || parts[0] != "" {
		return "it is not a hash", ""
	}
	f, ok := hashForms[parts[1]]
	if !ok {
		return fmt.Sprintf("$%.8s$ is not a method of crypt(5)", parts[1]), ""
	}
	if !regexp.MustCompile(f.form).MatchString(hash) {
		return fmt.Sprintf("it is not a whole $%s$ hash", parts[1]), ""
	}
	return "", f.weak
}

// SSHKeyProblem parses a line of authorized_keys(5) down to the key's numbers.
func SSHKeyProblem(line string) string {
	if line == "" || strings.ContainsAny(line, "\n\r") {
		return "a key is one line"
	}
	options, kind, blob := sshKeyFields(line)
	if kind == "" {
		return "no key type such as ssh-ed25519 is in it"
	}
	if option := unknownOption(options); option != "" {
		return fmt.Sprintf("sshd does not know its option %.60q, and lets nobody in by it", option)
	}
	raw, err := base64.StdEncoding.Strict().DecodeString(blob)
	if err != nil {
		return "the key is not base64; is a part of it missing?"
	}
	name, rest, ok := sshString(raw)
	if !ok || string(name) != kind {
		return "the key is not of type " + kind
	}
	var last [][]byte
	for len(rest) > 0 && len(last) < 8 {
		var f []byte
		if f, rest, ok = sshString(rest); !ok {
			return "the key is cut off"
		}
		last = append(last, f)
	}
	if len(last) != sshKinds[kind] || len(rest) > 0 {
		return "the key is cut off or has too much in it"
	}
	switch {
	case kind == "ssh-ed25519" || strings.HasPrefix(kind, "sk-ssh-ed25519"):
		if len(last[0]) != 32 {
			return "an ed25519 key has 32 bytes, not " + strconv.Itoa(len(last[0]))
		}
	case kind == "ssh-rsa":
		if n := new(big.Int).SetBytes(last[1]); n.BitLen() < 1024 {
			return fmt.Sprintf("an RSA key of %d bits is not accepted by sshd", n.BitLen())
		}
	case strings.Contains(kind, "ecdsa"):
		size, ok := map[string]int{"nistp256": 65, "nistp384": 97, "nistp521": 133}[string(last[0])]
		if !ok || !strings.Contains(kind, string(last[0])) || len(last[1]) != size || last[1][0] != 4 {
			return "the key is not a point of its curve"
		}
	}
	return ""
}

// sshKinds is how many fields follow the type in a key's blob.
var sshKinds = map[string]int{
	"ssh-ed25519": 1, "ssh-rsa": 2, "ssh-dss": 4,
	"ecdsa-sha2-nistp256": 2, "ecdsa-sha2-nistp384": 2, "ecdsa-sha2-nistp521": 2,
	"sk-ssh-ed25519@openssh.com": 2, "sk-ecdsa-sha2-nistp256@openssh.com": 3,
}

// sshOption is an option of authorized_keys, see sshd(8), and what ends it.
var sshOption = regexp.MustCompile(`(?i)^((no-)?(agent-forwarding|port-forwarding|pty|user-rc|x11-forwarding)|cert-authority|restrict` +
	`|no-touch-required|verify-required` +
	`|(command|environment|expiry-time|from|permitlisten|permitopen|principals|tunnel)="([^"\\]|\\.)*")(,\b|$)`)

// unknownOption returns the first of some options that sshd does not take, "" for none.
func unknownOption(options string) string {
	for options != "" {
		known := sshOption.FindString(options)
		if known == "" {
			name, _, _ := strings.Cut(options, ",")
			return name
		}
		options = options[len(known):]
	}
	return ""
}

// sshKeyFields returns the options if there are any, type and blob;
// options may have blanks inside double quotes.
func sshKeyFields(line string) (options, kind, blob string) {
	var words []string
	start, quoted := 0, false
	for i := 0; i <= len(line); i++ {
		if i == len(line) || (line[i] == ' ' || line[i] == '\t') && !quoted {
			if i > start {
				words = append(words, line[start:i])
			}
			start = i + 1
			continue
		}
		if line[i] == '"' && (i == 0 || line[i-1] != '\\') {
			quoted = !quoted
		}
	}
	for i := range min(2, len(words)) {
		if _, ok := sshKinds[words[i]]; ok && i+1 < len(words) {
			return strings.Join(words[:i], ""), words[i], words[i+1]
		}
	}
	return "", "", ""
}

func sshString(b []byte) (s, rest []byte, ok bool) {
	if len(b) < 4 {
		return nil, nil, false
	}
	n := binary.BigEndian.Uint32(b)
	if uint64(n) > uint64(len(b)-4) {
		return nil, nil, false
	}
	return b[4 : 4+n], b[4+n:], true
}

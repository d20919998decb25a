// SPDX-License-Identifier: Apache-2.0

package bpf

// Layout of an event, and of the process that may, in bytes.
const (
	nameSize  = 128 // of a parameter's path, with the zero that ends it
	valueSize = 64
	commSize  = 16

	atCgroup  = 0
	atPid     = 8
	atFlags   = 12
	atComm    = 16
	atName    = atComm + commSize
	atValue   = atName + nameSize
	eventSize = atValue + valueSize

	// Of an owner.
	ownCgroup = 8
	ownSize   = 16
)

// observer tells the ring of each attempt to write a parameter of table, unless the
// process of own makes it. Own may be forgotten where there is none: then it is 0.
func observer(table, own, ring int) []byte {
	var p program
	p.find(table)
	p.load(word, r7, r0, 0)
	p.skipOwn(own)
	p.table(r1, ring)
	p.set(r2, eventSize)
	p.set(r3, 0)
	p.call(ringReserve)
	p.ifZero(r0, "allow") // it is full: the reader looks at everything then
	p.move(r9, r0)
	p.store(word, r9, atPid, r8)
	p.store(word, r9, atFlags, r7)
	p.call(currentCgroup)
	p.store(double, r9, atCgroup, r0)
	p.move(r1, r9)
	p.add(r1, atComm)
	p.set(r2, commSize)
	p.call(currentComm)
	for at := int16(0); at < nameSize; at += 8 {
		p.load(double, r1, fp, at-nameSize)
		p.store(double, r9, atName+at, r1)
	}
	for at := int16(0); at < valueSize; at += 8 {
		p.zero(double, r9, atValue+at)
	}
	p.move(r1, r6)
	p.move(r2, r9)
	p.add(r2, atValue)
	p.set(r3, valueSize)
	p.call(sysctlNewValue) // a value that is too long is cut
	p.move(r1, r9)
	p.set(r2, 0)
	p.call(ringSubmit)
	p.label("allow")
	p.set(r0, 1)
	p.exit()
	return p.bytes()
}

// protector lets nobody but the process of own write a parameter of table.
func protector(table, own int) []byte {
	var p program
	p.find(table)
	p.skipOwn(own)
	p.set(r0, 0) // the writer sees EPERM
	p.exit()
	p.label("allow")
	p.set(r0, 1)
	p.exit()
	return p.bytes()
}

// find looks the parameter that is written up in a table: r0 is its value. r6 is the
// context from here on, and the name is at the end of the stack.
func (p *program) find(table int) {
	p.move(r6, r1)
	p.load(word, r0, r6, 0) // 1 for a write
	p.ifZero(r0, "allow")
	for at := int16(0); at < nameSize; at += 8 {
		p.zero(double, fp, at-nameSize)
	}
	p.move(r1, r6)
	p.move(r2, fp)
	p.add(r2, -nameSize)
	p.set(r3, nameSize)
	p.set(r4, 0)
	p.call(sysctlName)
	p.ifNegative(r0, "allow") // a name that is too long is not in the table
	p.table(r1, table)
	p.move(r2, fp)
	p.add(r2, -nameSize)
	p.call(mapLookup)
	p.ifZero(r0, "allow")
}

// skipOwn lets the process of own do as it likes. r8 is the process from here on.
func (p *program) skipOwn(own int) {
	p.call(currentPidTgid)
	p.shift(r0, 32)
	p.move(r8, r0)
	p.zero(word, fp, -nameSize-8)
	p.table(r1, own)
	p.move(r2, fp)
	p.add(r2, -nameSize-8)
	p.call(mapLookup)
	p.ifZero(r0, "allow") // there always is one
	p.load(double, r9, r0, ownCgroup)
	p.load(word, r1, r0, 0)
	p.ifOther(r1, r8, "others")
	p.call(currentCgroup)
	p.ifSame(r0, r9, "allow")
	p.label("others")
}

//! A tree of a page that keeps a limited number of nodes and bytes.

use std::borrow::Cow;
use std::cell::Cell;
use std::rc::Rc;

use html5ever::tendril::StrTendril;
use html5ever::tree_builder::{ElementFlags, NodeOrText, QuirksMode, TreeSink};
use html5ever::{Attribute, ExpandedName, QualName};
use markup5ever_rcdom::{Handle, Node, NodeData, RcDom};

/// Maximum number of elements and comments of one page.
const MAX_ELEMENTS: usize = 150_000;
/// Nesting at which parsing stops.
const MAX_PARSED_DEPTH: usize = 512;
/// Maximum number of attributes of one element. The parser repeats those of open formatting elements in each block.
const MAX_ATTRIBUTES: usize = 64;
/// Maximum estimated size of the tree.
pub(super) const MAX_BYTES: usize = 96 << 20;
/// Estimated size of a node: with its counters, and its places in the lists of its parent and of its children.
const NODE_BYTES: usize = size_of::<Node>() + 64;
/// Estimated size of a text beyond its characters.
const TEXT_BYTES: usize = 32;

/// A tree that keeps nothing beyond its limits, and does not collect parse errors. Each way in which the parser adds to the tree
/// charges what it keeps, because a few bytes of a page can repeat all open elements.
#[derive(Default)]
pub(super) struct BoundedTree {
    dom: RcDom,
    created: Cell<usize>,
    bytes: Cell<usize>,
    is_cut: Cell<bool>,
}

impl BoundedTree {
    /// Returns whether the tree has reached a limit. It then keeps nothing more.
    pub(super) fn is_full(&self) -> bool {
        self.created.get() > MAX_ELEMENTS || self.bytes.get() > MAX_BYTES
    }

    /// Returns whether the open elements are nested too deeply. The open elements are the last nodes of each level.
    pub(super) fn is_deep(&self) -> bool {
        let mut at = Rc::clone(&self.dom.document);
        for _ in 0..MAX_PARSED_DEPTH {
            let Some(last) = at.children.borrow().last().map(Rc::clone) else { return false };
            at = last;
        }
        true
    }

    /// Charges `bytes`. Returns false if the tree is full.
    fn try_charge(&self, bytes: usize) -> bool {
        self.bytes.set(self.bytes.get().saturating_add(bytes));
        self.is_cut.set(self.is_cut.get() || self.is_full());
        !self.is_full()
    }

    fn try_create(&self, bytes: usize) -> bool {
        self.created.set(self.created.get().saturating_add(1));
        self.try_charge(bytes.saturating_add(NODE_BYTES))
    }

    /// Charges a text. A node was charged when it was created.
    fn try_add(&self, child: &NodeOrText<Handle>) -> bool {
        match child {
            NodeOrText::AppendText(text) => self.try_charge(text_bytes(text).saturating_add(NODE_BYTES)),
            NodeOrText::AppendNode(_) => !self.is_full(),
        }
    }

    /// Returns those attributes that an element keeps which has `known` attributes, with their size.
    fn limited(mut attrs: Vec<Attribute>, known: usize) -> (Vec<Attribute>, usize) {
        attrs.truncate(MAX_ATTRIBUTES.saturating_sub(known));
        attrs.shrink_to_fit();
        let bytes = |one: &Attribute| {
            let name = one.name.local.len().saturating_add(TEXT_BYTES);
            size_of::<Attribute>().saturating_add(name).saturating_add(text_bytes(&one.value))
        };
        let bytes = attrs.iter().map(bytes).fold(0, usize::saturating_add);
        (attrs, bytes)
    }
}

fn text_bytes(text: &StrTendril) -> usize {
    text.len().saturating_add(TEXT_BYTES)
}

impl TreeSink for BoundedTree {
    type Handle = Handle;
    /// The tree, and whether a part was left out; `None` if the tree would have too many bytes.
    type Output = Option<(RcDom, bool)>;
    type ElemName<'a> = ExpandedName<'a>;

    fn finish(self) -> Option<(RcDom, bool)> {
        (self.bytes.get() <= MAX_BYTES).then_some((self.dom, self.is_cut.get()))
    }

    fn parse_error(&self, _: Cow<'static, str>) {}

    fn get_document(&self) -> Handle {
        self.dom.get_document()
    }

    fn elem_name<'a>(&'a self, target: &'a Handle) -> ExpandedName<'a> {
        self.dom.elem_name(target)
    }

    fn create_element(&self, name: QualName, attrs: Vec<Attribute>, flags: ElementFlags) -> Handle {
        let (attrs, bytes) = Self::limited(attrs, 0);
        // The contents of a template have a node of their own.
        let has_contents = !flags.template || self.try_create(0);
        let is_kept = self.try_create(bytes.saturating_add(name.local.len())) && has_contents;
        let attrs = if is_kept { attrs } else { Vec::new() };
        self.dom.create_element(name, attrs, flags)
    }

    fn create_comment(&self, text: StrTendril) -> Handle {
        let is_kept = self.try_create(text_bytes(&text));
        self.dom.create_comment(if is_kept { text } else { StrTendril::new() })
    }

    fn create_pi(&self, target: StrTendril, data: StrTendril) -> Handle {
        let is_kept = self.try_create(text_bytes(&target).saturating_add(text_bytes(&data)));
        let (target, data) = if is_kept { (target, data) } else { <(StrTendril, StrTendril)>::default() };
        self.dom.create_pi(target, data)
    }

    fn append(&self, parent: &Handle, child: NodeOrText<Handle>) {
        if self.try_add(&child) {
            self.dom.append(parent, child);
        }
    }

    fn append_based_on_parent_node(&self, element: &Handle, previous: &Handle, child: NodeOrText<Handle>) {
        if self.try_add(&child) {
            self.dom.append_based_on_parent_node(element, previous, child);
        }
    }

    fn append_doctype_to_document(&self, name: StrTendril, public: StrTendril, system: StrTendril) {
        let texts = [&name, &public, &system].map(text_bytes).into_iter().fold(0, usize::saturating_add);
        if self.try_create(texts) {
            self.dom.append_doctype_to_document(name, public, system);
        }
    }

    fn get_template_contents(&self, target: &Handle) -> Handle {
        self.dom.get_template_contents(target)
    }

    fn same_node(&self, one: &Handle, other: &Handle) -> bool {
        self.dom.same_node(one, other)
    }

    fn set_quirks_mode(&self, mode: QuirksMode) {
        self.dom.set_quirks_mode(mode);
    }

    fn append_before_sibling(&self, sibling: &Handle, node: NodeOrText<Handle>) {
        if self.try_add(&node) {
            self.dom.append_before_sibling(sibling, node);
        }
    }

    fn add_attrs_if_missing(&self, target: &Handle, attrs: Vec<Attribute>) {
        let NodeData::Element { attrs: known, .. } = &target.data else { return };
        let (attrs, bytes) = Self::limited(attrs, known.borrow().len());
        if self.try_charge(bytes) {
            self.dom.add_attrs_if_missing(target, attrs);
        }
    }

    // A full tree does not move nodes either: their new parents may not be in it.
    fn remove_from_parent(&self, target: &Handle) {
        if !self.is_full() {
            self.dom.remove_from_parent(target);
        }
    }

    fn reparent_children(&self, node: &Handle, parent: &Handle) {
        if !self.is_full() {
            self.dom.reparent_children(node, parent);
        }
    }

    fn is_mathml_annotation_xml_integration_point(&self, target: &Handle) -> bool {
        self.dom.is_mathml_annotation_xml_integration_point(target)
    }
}

#[cfg(test)]
mod tests {
    use html5ever::parse_document;
    use html5ever::tendril::TendrilSink as _;

    use super::*;

    /// Attack: nested templates, each with a node for its contents. The control: other elements.
    #[test]
    fn template_is_charged_with_its_contents() {
        let created = |html: &str| {
            let mut parser = parse_document(BoundedTree::default(), Default::default());
            parser.process(html.into());
            parser.tokenizer.sink.sink.created.get()
        };
        // The parser adds `html`, `head` and `body`.
        assert_eq!(["<template>", "<b>"].map(|element| created(&element.repeat(1_000))), [2_002, 1_003]);
    }

    /// Returns the number of attributes of each element.
    fn attributes(html: &str) -> Vec<(String, usize)> {
        let (dom, _) = parse_document(BoundedTree::default(), Default::default()).one(html).unwrap();
        // A dropped node takes the children of its children.
        let (mut nodes, mut all) = (vec![Rc::clone(&dom.document)], Vec::new());
        while let Some(node) = nodes.pop() {
            if let NodeData::Element { name, attrs, .. } = &node.data {
                all.push((name.local.to_string(), attrs.borrow().len()));
            }
            nodes.extend(node.children.borrow().iter().rev().map(Rc::clone));
        }
        all
    }

    /// The control: an element of few attributes keeps them.
    #[test]
    fn element_keeps_a_limited_number_of_attributes() {
        let many = |letter: char, count: usize| (0..count).map(|ix| format!(" {letter}{ix}")).collect::<String>();
        let attack = format!("<html{}><html{}><b{}>x", many('a', 9), many('b', 1_000), many('c', 1_000));
        let of = |name: &str, count| (name.to_owned(), count);
        let most = MAX_ATTRIBUTES;
        assert_eq!(attributes(&attack), [of("html", most), of("head", 0), of("body", 0), of("b", most)]);
        let few = format!("<html{}><html{}><b{}>x", many('a', 9), many('b', 9), many('c', 20));
        assert_eq!(attributes(&few), [of("html", 18), of("head", 0), of("body", 0), of("b", 20)]);
    }
}
